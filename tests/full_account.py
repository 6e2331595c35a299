"""Fills a learner's folder as notebooks do: by predict, compare and answer, with pictures."""

import json
from pathlib import Path

from labkit.workbook import parts, pictures, predictions
from labkit.workbook.plots import house_style, new_picture
from labkit.workbook.predictions import answer, compare, predict

ANSWERS = {  # by notebook and question, as they came out on a real machine
    "01": {
        5: {
            "first_text_streamed_s": 0.107,
            "first_text_unstreamed_s": 4.96,
            "last_text_streamed_s": 4.96,
            "last_text_unstreamed_s": 4.96,
        },
        6: {
            "tokens_computed_without_cache": 760,
            "tokens_computed_with_cache": 55,
            "tokens_per_s_without_cache": 9.23,
            "tokens_per_s_with_cache": 21.8,
            "itl_growth_16_to_256_tokens": 5.67,
        },
    },
    "02": {
        3: {
            "wasted_slots_percent": 72.2,
            "tokens_per_s_batches_of_4": 112,
            "tokens_per_s_by_tokens": 255,
        },
        4: {
            "throughput_16_over_1_no_cache": 1.53,
            "best_batch_under_the_slo": 4,
            "goodput_best": 4.81,
            "goodput_16": 0,
        },
    },
    "03": {
        6: {
            "itl_growth_without_cache": 8.47,
            "itl_growth_with_cache": 0.983,
            "batch_16_gain_without_cache": 1.26,
            "batch_16_gain_with_cache": 10.3,
        },
        2: {"decode_percent_of_flops": 4.03, "split_gain_here": 1.03},
    },
    "04": {
        3: {"requests_at_once_of_40_tokens": 21, "requests_at_once_of_1000_tokens": 1},
        4: {
            "batch_in_rows": 4,
            "batch_in_blocks": 16,
            "tokens_per_s_rows": 88.7,
            "tokens_per_s_blocks": 140,
        },
    },
    "05": {
        2: {
            "bytes_over_the_least_gathered": 2.98,
            "bytes_over_the_least_a_program_a_kv_head": 1,
        },
    },
    "06": {
        7: {
            "first_text_s_static_at_the_end": 0.443,
            "first_text_s_static_streamed": 0.283,
            "first_text_s_continuous_streamed": 0.128,
            "E2E_s_static_streamed": 0.443,
            "E2E_s_continuous_streamed": 0.307,
        },
        9: {
            "ttft_of_short_behind_long_naive_s": 0.792,
            "ttft_of_short_behind_long_continuous_s": 0.182,
            "longest_gap_budget_1024_ms": 466,
            "longest_gap_budget_64_ms": 52.2,
        },
        3: {
            "fewest_tokens_in_a_step_of_4_requests": 4,
            "most_tokens_in_a_step_of_4_requests": 374,
            "tokens_per_s_budget_16": 788,
            "tokens_per_s_budget_512": 1503,
            "longest_gap_budget_16_ms": 21.5,
            "longest_gap_budget_512_ms": 206,
        },
    },
    "07": {
        1: {
            "process_over_in_process_1_stream_cpu": 0.96,
            "process_over_in_process_64_streams_paced": 1.62,
            "delivery_us_in_process_1_stream": 80.2,
            "delivery_us_process_1_stream": 566,
            "ipc_us_per_token": 0.122,
            "error_after_kill_s": 0.054,
            "ready_after_kill_s": 2.06,
        },
        2: {
            "splitting_gains_2_streams_paced": 1.07,
            "splitting_gains_64_streams_paced": 1.62,
            "tokens_per_s_baseline": 4573,
            "tokens_per_s_tokenizer": 1969,
            "tokens_per_s_small-batch": 415,
            "tokens_per_s_kv": 1472,
        },
        8: {
            "tokens_for_nobody_running": 17,
            "tokens_for_nobody_waiting": 20,
            "blocks_held_for_nobody": 2,
            "tokens_for_nobody_when_told": 0,
            "blocks_after_both_left": 0,
        },
    },
    "08": {
        9: {"chat_steps_behind_a_long_one": 20, "chat_steps_with_preemption": 1},
        10: {
            "light_fcfs_chat_ttft_p99_s": 0.0389,
            "light_priority_chat_ttft_p99_s": 0.0294,
            "heavy_fcfs_chat_ttft_p99_s": 0.934,
            "heavy_priority_chat_ttft_p99_s": 0.0312,
            "heavy_fcfs_steps": 64,
            "heavy_priority_steps": 72,
        },
    },
}
COMPARED = {  # key: predicted, measured, unit
    "01.first_text": (20, 46.4, "times later"),
    "03.flops": (50, 4.03, "% of the FLOP/s"),
    "06.four_ways": (4, 3.46, "times sooner"),
    "07.error_s": (0, 0.054, "seconds"),
    "08.saves": (None, 29.9, "times shorter"),
    "00.bandwidth": (40, 44.8, "GB/s"),
}


@house_style()
def show_a_figure(story: str) -> None:
    """As a cell does whose last line is a figure."""
    picture, axes = new_picture("Tokens per second", "batch size", "tokens/s", 4, 2)
    axes.plot([1, 4, 16], [1, 3, 5])
    picture.story = story
    picture._repr_png_()


def fill() -> None:
    """Runs the commands of eight notebooks; one exercise has passed."""
    for notebook, questions in ANSWERS.items():
        predictions.begin(notebook)
        pictures.begin(keep=True)
        for question, numbers in questions.items():
            answer(question, **numbers)
    for key, (guess, measured, unit) in COMPARED.items():
        slider = predict(key, low=0, high=100, unit=unit).slider
        if guess:
            slider.value = guess
        elif guess == 0:
            predictions.keep("predictions.json", key, 0)
        show_a_figure(f"what {key} looks like")
        compare(key, measured, unit, modelled=key == "06.four_ways")
    parts.save_part("00.1", "def step_time(): ...")


def change(path: Path, edit) -> None:
    """Has `edit` change the object that a JSON file holds."""
    held = json.loads(path.read_text(encoding="utf-8"))
    edit(held)
    path.write_text(json.dumps(held), encoding="utf-8")
