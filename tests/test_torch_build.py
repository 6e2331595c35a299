"""Which torch a machine gets: decided from plain facts, so every machine can be tried here."""

import pytest
from packaging.specifiers import SpecifierSet

from labkit.torch_build import Gpu, choose, keep, parse_gpu, refuse

H200 = Gpu("NVIDIA H200", "580.95.05", (9, 0))


def names(choice):
    return [source.name for source in choice.sources]


def pin(source):
    return next(argument for argument in source.arguments if argument.startswith("torch="))


def test_a_folder_of_wheels_is_taken_before_any_index():
    choice = choose("2.13.0", "Linux", None, in_folder=True, index_reachable=True)
    assert names(choice) == ["a folder of wheels", "the default index"]
    assert "--no-index" in choice.sources[0].arguments
    assert choice.sources[0].download_mb == 0


def test_without_a_folder_the_cpu_index_of_pytorch_is_taken():
    choice = choose("2.13.0", "Linux", None, in_folder=False, index_reachable=True)
    assert names(choice) == ["PyTorch's CPU index", "the default index"]
    assert pin(choice.sources[0]) == "torch==2.13.0+cpu"
    assert "no NVIDIA GPU" in choice.why


def test_the_default_index_is_left_when_the_other_two_are_out_of_reach_and_it_says_so():
    choice = choose("2.13.0", "Linux", None, in_folder=False, index_reachable=False)
    assert names(choice) == ["the default index"]
    assert choice.build == "the CUDA build"
    assert "no NVIDIA GPU" in choice.why and "out of reach" in choice.why
    assert choice.sources[0].download_mb > 2000


def test_a_gpu_with_a_driver_that_allows_it_gets_the_cuda_build():
    choice = choose("2.13.0", "Linux", H200, in_folder=True, index_reachable=True)
    assert choice.build == "the CUDA build"
    assert "NVIDIA H200" in choice.why and "580.95.05" in choice.why


def test_the_cuda_build_passes_over_a_cpu_wheel_that_pip_would_prefer():
    choice = choose("2.13.0", "Linux", H200, in_folder=True, index_reachable=True)
    wanted = SpecifierSet(pin(choice.sources[0]).removeprefix("torch"))
    assert "2.13.0" in wanted
    assert "2.13.0+cpu" not in wanted


@pytest.mark.parametrize(
    "gpu, words",
    [
        (Gpu("Tesla T4", "535.183.01", (7, 5)), ["Tesla T4", "535.183.01", "580"]),
        (Gpu("Tesla V100", "580.65.06", (7, 0)), ["Tesla V100", "7.0", "7.5"]),
        (Gpu("Old", "[N/A]", None), ["[N/A]", "580"]),
    ],
)
def test_a_gpu_that_the_cuda_build_does_not_run_on_gets_the_cpu_build(gpu, words):
    choice = choose("2.13.0", "Linux", gpu, in_folder=False, index_reachable=True)
    assert choice.build == "the CPU build"
    for word in words:
        assert word in choice.why


def test_a_driver_that_does_not_tell_the_capability_is_trusted():
    assert refuse(Gpu("NVIDIA L4", "590.10", None)) is None


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_elsewhere_the_default_index_is_right(system):
    choice = choose("2.13.0", system, None, in_folder=False, index_reachable=True)
    assert names(choice) == ["the default index"]
    assert pin(choice.sources[0]) == "torch==2.13.0"


def test_a_torch_that_is_there_costs_nothing():
    (source,) = keep("torch-2.13.0+cpu").sources
    assert (source.arguments, source.download_mb) == ((), 0)


@pytest.mark.parametrize(
    "told, gpu",
    [
        ("NVIDIA H200, 580.95.05, 9.0\nNVIDIA H200, 580.95.05, 9.0\n", H200),
        ("NVIDIA A10G, 470.42.01\n", Gpu("NVIDIA A10G", "470.42.01", None)),
        ("NVIDIA X, 580.1, [N/A]\n", Gpu("NVIDIA X", "580.1", None)),
        ("No devices were found\n", None),
        ("", None),
    ],
)
def test_what_nvidia_smi_tells_is_read(told, gpu):
    assert parse_gpu(told) == gpu
