"""The API's own text side against `transformers`, which it does without."""

import subprocess
import sys

import pytest

from labkit.model.loading import read_tokenizer
from labkit.model.sources import resolve
from labkit.model.tiny import tiny_tokenizer
from labkit.serving.text import TemplateRefusal, TextSide, environment

CONVERSATIONS = [
    [{"role": "user", "content": "Hello!"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "한글 😀\n1234 <b>"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
     {"role": "user", "content": "<|im_end|> is text here, or is it?"}],
]  # fmt: skip
TEXTS = ["Hello", "  two  spaces ", "한국어", "👩‍👩‍👧 ď", "12345\n\tdef f(x):", "<|im_start|>"]


def pair(name):
    theirs = tiny_tokenizer() if name == "tiny" else read_tokenizer(resolve(name))
    return TextSide.load(name), theirs


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_tokens_and_text_are_those_of_transformers(name):
    ours, theirs = pair(name)
    for text in TEXTS:
        token_ids = theirs.encode(text)
        assert ours.encode(text) == token_ids
        for skip in (True, False):
            assert ours.decode(token_ids, skip_special_tokens=skip) == theirs.decode(
                token_ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )
    for messages in CONVERSATIONS:
        expected = theirs.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert ours.encode_chat(messages) == expected


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_the_bytes_of_tokens_joined_are_the_text(name):
    ours, _ = pair(name)
    for text in TEXTS[:-1]:
        pieces = [ours.token_bytes(token_id) for token_id in ours.encode(text)]
        assert b"".join(pieces) == text.encode()
    assert ours.token_bytes(10**9) == b""


TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content | tojson }}{% endfor %}",
    "{%- for m in messages %}\n  {%- if loop.first %}{% continue %}{% endif %}\n{{ m.content }}\n"
    "{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}ok",
]  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_are_rendered_as_by_transformers(template):
    theirs = tiny_tokenizer()
    ours = TextSide.load("tiny")
    ours.template = environment().from_string(template)
    messages = CONVERSATIONS[2]
    assert ours.render(messages) == theirs.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )


def test_a_template_that_refuses_is_told_with_its_reason():
    ours = TextSide.load("tiny")
    ours.template = environment().from_string(TEMPLATES[3])
    with pytest.raises(TemplateRefusal, match="no system here"):
        ours.render(CONVERSATIONS[1])


def test_a_template_gets_no_way_out_of_its_sandbox():
    ours = TextSide.load("tiny")
    way_out = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    ours.template = environment().from_string(way_out)
    with pytest.raises(TemplateRefusal):
        ours.render(CONVERSATIONS[0])


def test_it_loads_neither_torch_nor_transformers():
    code = "import sys, labkit.serving.server; print({'torch', 'transformers'} & {*sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert loaded.stdout.strip() == "set()", loaded.stderr
