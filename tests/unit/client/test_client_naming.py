"""Which job is meant by what a person types."""

import pytest
from gpuyard import naming
from gpuyard.errors import Ambiguous, NotFound

from tests.unit.client.client_api import Api, job


def test_an_id_is_asked_for_directly(api: Api) -> None:
    """Without a list."""
    api.jobs(job("a"))
    assert naming.find(api.client(), "job-" + "a" * 16).name == "train"
    assert [request.url.path for request in api.requests] == ["/v1/jobs/job-" + "a" * 16]


def test_a_name_means_its_job(api: Api) -> None:
    """Exactly, even where another begins with it."""
    api.jobs(job("b", "train"), job("c", "train-2"))
    assert naming.find(api.client(), "train").job_id == job("b")["job_id"]


def test_of_one_name_the_job_that_lives_is_meant(api: Api) -> None:
    """Yesterday's run of the same name is not in the way."""
    api.jobs(job("b", state="queued"), job("c", state="failed"), job("d", state="succeeded"))
    assert naming.find(api.client(), "train").job_id == job("b")["job_id"]


@pytest.mark.parametrize("ref", ["job-b", "tr", "trai"])
def test_the_beginning_of_an_id_or_name_suffices_if_only_one_begins_so(api: Api, ref: str) -> None:
    """As with git."""
    api.jobs(job("b", "train"), job("c", "serve"))
    assert naming.find(api.client(), ref).job_id == job("b")["job_id"]


def test_what_means_several_jobs_names_them_and_chooses_none(api: Api) -> None:
    """With ids, names and states, to choose from."""
    api.jobs(job("b", "train-1"), job("c", "train-2", "queued"))
    with pytest.raises(Ambiguous) as caught:
        naming.find(api.client(), "train")
    assert caught.value.candidates == ((job("b")["job_id"], "train-1", "running"), (job("c")["job_id"], "train-2", "queued"))
    assert "nothing was done" in str(caught.value)


@pytest.mark.parametrize(
    ("states", "meant"), [(("queued", "running"), 0), (("failed", "running", "queued"), 1), (("failed", "succeeded"), 0)]
)
def test_of_several_jobs_of_one_name_the_youngest_is_meant(api: Api, states: tuple[str, ...], meant: int) -> None:
    """First of those that live; who asked hears how many others there are."""
    rows = [job(letter, state=state) for letter, state in zip("bcd", states, strict=False)]
    api.jobs(*rows)
    heard: list[tuple[str, int]] = []
    found = naming.find(api.client(), "train", chosen=lambda job, others: heard.append((job.job_id, others)))
    assert found.job_id == rows[meant]["job_id"]
    assert heard == [(found.job_id, len(rows) - 1)]


def test_of_two_living_jobs_of_one_name_none_is_chosen_where_one_is_to_end(api: Api) -> None:
    """What was stopped cannot be taken back."""
    api.jobs(job("b"), job("c", state="queued"), job("d", state="failed"))
    with pytest.raises(Ambiguous) as caught:
        naming.find(api.client(), "train", live_only=True)
    assert [candidate[0] for candidate in caught.value.candidates] == [job("b")["job_id"], job("c")["job_id"]]


@pytest.mark.parametrize("ref", ["nothing", "", "job-zzz", "../x"])
def test_what_means_no_job_is_not_found(api: Api, ref: str) -> None:
    """The empty name means none, not all."""
    api.jobs(job("b"))
    with pytest.raises(NotFound):
        naming.find(api.client(), ref)


def test_ended_jobs_are_not_meant_where_only_living_ones_make_sense(api: Api) -> None:
    """Stopping what is over would do nothing."""
    api.jobs(job("b", "old", "succeeded"))
    with pytest.raises(NotFound, match="no living job"):
        naming.find(api.client(), "old", live_only=True)
