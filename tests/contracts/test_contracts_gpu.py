"""The GPU shorthand of job files."""

import pytest
from gpuyard_contracts.gpu import memory_mib, parse, write
from gpuyard_contracts.spec import GpuAsk, JobSpec
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("H100:2", GpuAsk(models=("H100",), count=2)),
        ("2", GpuAsk(count=2)),
        ("24GB..", GpuAsk(memory_mib=22889)),
        ("24GB..48GB:2", GpuAsk(memory_mib=22889, memory_max_mib=45777, count=2)),
        ("16GiB", GpuAsk(memory_mib=16384)),
        ("A100-80GB:0.25", GpuAsk(models=("A100-80GB",), milli=250)),
        ("T4 | A100 : 1", GpuAsk(models=("T4", "A100"))),
        ("mig-3g.40gb", GpuAsk(mig_profile="3g.40gb")),
        ("T4:4GB", GpuAsk(models=("T4",), share_memory_mib=3815)),
        ("0.5", GpuAsk(milli=500)),
        ("T4:2x0.25", GpuAsk(models=("T4",), count=2, milli=250)),
        ("3 x 0.5", GpuAsk(count=3, milli=500)),
        ("A100-80GB:2x40GB", GpuAsk(models=("A100-80GB",), count=2, share_memory_mib=38147)),
    ],
)
def test_shorthand_is_read(text, asked) -> None:
    """Each form stands for exactly one ask."""
    assert GpuAsk(**parse(text)) == asked


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x:y",
        "T4:0",
        "T4:-1",
        "T4:1.5",
        "T4:0.0001",
        "T4:nan",
        "T4:1e9",
        "48GB..24GB",
        "T4:2:2",
        "§4:1",
        "T4:2x2",
        "T4:0x0.5",
        "T4:2x2x0.5",
        "2x24GB",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_explanation(text) -> None:
    """A typo never becomes another request."""
    with pytest.raises(ValueError) as caught:
        GpuAsk(**parse(text))
    assert len(str(caught.value)) > 10


def test_memory_is_rounded_up_to_whole_mebibytes() -> None:
    """What was asked for is there: 24 GB are 22888.2 MiB. A card sold as 16 GB (15360 MiB) has what '16GB' asks for."""
    assert memory_mib("24GB") == 22889
    assert memory_mib("16GB") <= 15360


def test_a_job_takes_the_shorthand_or_the_long_form() -> None:
    """Both say the same."""
    short = JobSpec(name="a", command=("x",), gpu="T4:2")  # type: ignore[arg-type]
    assert short.gpu == GpuAsk(models=("T4",), count=2)
    with pytest.raises(ValidationError, match="valid dictionary"):
        JobSpec(name="a", command=("x",), gpu=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["2", "0.25", "2x0.25", "A100-80GB:2", "T4|A100:1", "24GB..:1", "24GB..48GB:2", "mig-3g.40gb:1", "T4:4GB", "T4:2x4GB", "*:46068MiB"],
)
def test_what_is_written_short_is_written_back_as_it_was(text: str) -> None:
    """So that a suggestion can be copied into a job file."""
    assert write(GpuAsk.model_validate(parse(text)).model_dump()) == text


def test_what_has_no_shorthand_is_written_as_a_mapping() -> None:
    """Which a job file takes as well."""
    asked = GpuAsk(models=("A100", "H100"), memory_mib=1000)
    assert write(asked.model_dump()) == "{count: 1, milli: 1000, memory_mib: 1000, models: [A100, H100]}"
