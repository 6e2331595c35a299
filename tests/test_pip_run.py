"""What a person is told while pip works, and when it fails."""

import pytest

from labkit.pip_run import told, why


@pytest.mark.parametrize(
    "line, words",
    [
        ("Collecting torch==2.13.0", "looking up torch==2.13.0"),
        (
            "  Downloading triton-3.7.1-cp311-cp311-manylinux_2_28_x86_64.whl (197.7 MB)",
            "downloading triton (197.7 MB)",
        ),
        (
            "  Downloading https://host/whl/torch-2.13.0%2Bcpu-cp311.whl (191.8 MB)",
            "downloading torch (191.8 MB)",
        ),
        ("  Using cached tqdm-4.70.1-py3-none-any.whl (78 kB)", "found tqdm in pip's cache"),
        ("Installing collected packages: a, b, c", "unpacking 3 packages"),
        ("Requirement already satisfied: numpy in ./lib", None),
        ("WARNING: something", None),
    ],
)
def test_pips_lines_become_words(line, words):
    assert told(line) == words


def test_bytes_are_counted_within_a_download():
    about = told("  Downloading triton-3.7.1-cp311.whl (197.7 MB)")
    assert told("Progress 50000000 of 197700000", about) == "downloading triton (50 of 198 MB)"


def test_bytes_are_counted_from_one_report_to_the_next():
    about = told("  Downloading triton-3.7.1-cp311.whl (197.7 MB)")
    for done in (50, 100):
        about = told(f"Progress {done}000000 of 197700000", about)
    assert about == "downloading triton (100 of 198 MB)"


@pytest.mark.parametrize(
    "output, words",
    [
        (
            "WARNING: Retrying … NewConnectionError('… Temporary failure in name resolution')\n"
            "ERROR: No matching distribution found for jupyterlab==4.6.6\n",
            "network",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left", "disk"),
        ("SSLError(SSLCertVerificationError(1, 'CERTIFICATE_VERIFY_FAILED'))", "certificate"),
        (
            "ERROR: No matching distribution found for torch==2.13.0\n",
            "torch==2.13.0 for this Python",
        ),
        ("Collecting x\nERROR: Something of its own\n", "Something of its own"),
        ("", "without saying why"),
    ],
)
def test_the_reason_of_a_failure_is_one_sentence(output, words):
    assert words in why(output)
    assert "\n" not in why(output)
