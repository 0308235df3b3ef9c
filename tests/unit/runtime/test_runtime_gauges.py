"""A service's own numbers as Prometheus' text."""

from gpuyard_runtime.metrics import Metrics
from prometheus_client.parser import text_string_to_metric_families


def shown(gauges: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    metrics = Metrics("toy")
    metrics.add_gauges(lambda: gauges)  # pyright: ignore[reportArgumentType]
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_gauges_are_told_by_label_or_as_one_number() -> None:
    found = shown({"toy_waiting": {(("why", "rain"),): 2, (("why", "snow"),): 0.5}, "toy_live": 3, "toy_none": {}})
    assert found["gpuyard_toy_waiting", (("why", "rain"),)] == 2
    assert found["gpuyard_toy_waiting", (("why", "snow"),)] == 0.5
    assert found["gpuyard_toy_live", ()] == 3
    assert not any(name == "gpuyard_toy_none" for name, _ in found)


def test_a_name_of_another_standard_keeps_its_spelling() -> None:
    assert shown({"DCGM_FI_DEV_GPU_TEMP": {(("UUID", "GPU-a"),): 50}})["DCGM_FI_DEV_GPU_TEMP", (("UUID", "GPU-a"),)] == 50


def test_any_character_in_a_label_comes_through() -> None:
    text = 'a"b\\c\nd'
    assert shown({"toy": {(("name", text),): 1}})["gpuyard_toy", (("name", text),)] == 1
