"""A spot job makes room for another tenant's, and goes on from its checkpoint when the room is free again."""

import pytest

from tests.support.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

COUNTS = """
at="$GPUYARD_CHECKPOINT_DIR/count"
count=$(cat "$at" 2>/dev/null || echo 0)
echo "begins at $count"
while [ "$count" -lt 150 ]; do
  count=$((count + 1))
  echo "$count" > "$at.new" && mv "$at.new" "$at"
  sleep 0.1
done
"""


def test_a_spot_job_yields_and_goes_on_from_its_checkpoint(yard: Yard) -> None:
    """All four cards of the node are a spot job's; another tenant wants one: it runs within the spot job's grace, then that goes on."""
    spot = yard.shell(COUNTS, gpu="T4:4", spot=True, grace_seconds=2)
    yard.running(spot)
    wanted = yard.shell("sleep 1", tenant="beta", gpu="T4:1")
    assert yard.ended(wanted, tenant="beta").state == "succeeded"
    ended = yard.ended(spot)
    assert (ended.state, ended.attempt) == ("succeeded", 2)
    first, second = (line.split()[-1] for line in yard.log(ended).splitlines() if line.startswith("begins"))
    assert first == "0"
    assert int(second) > 0
    told = [event.data["reason"] for event in yard.client("acme").events(spot.job_id) if event.name == "job.requeued"]
    assert told == ["preempted"]
    yard.nothing_is_held()
    yard.money_is_right()
