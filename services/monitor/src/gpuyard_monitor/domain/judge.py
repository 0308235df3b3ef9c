"""Judging one card's sample: what it makes of the streak, and whether an incident opens or closes by it.

Level-triggered: the decision depends on the streak and on what is open now, so a decision that was lost (its unit was undone, the process
died) is made again by the next sample. Nothing is opened for what was seen fewer times in a row than the rule says.
"""

from collections.abc import Collection
from dataclasses import dataclass

from gpuyard_monitor.domain.model import Card, Closing, Decision, Incident, Kind, Opening, Streak
from gpuyard_monitor.domain.rules import Heat, Rules

HEALED_BY_REBOOT: frozenset[Kind] = frozenset({"xid-fatal", "ecc-uncorrectable"})
"""Faults that no single sample can show to be over: only a boot after the fault, with the card there, does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one sample told of a card. `new_errors`: uncorrectable ECC errors since the sample before, within the same boot."""

    temperature_c: int | None
    is_lost: bool
    new_errors: int


NOTHING = Streak()


def streak_after(streak: Streak, seen: Seen, heat: Heat) -> Streak:
    """The streak with this sample. A temperature that was not told changes nothing; one between the thresholds ends both heat streaks."""
    lost, present = (streak.lost + 1, 0) if seen.is_lost else (0, streak.present + 1)
    hot, cool = streak.hot, streak.cool
    if seen.temperature_c is not None:
        hot = hot + 1 if seen.temperature_c >= heat.open_c else 0
        cool = cool + 1 if seen.temperature_c < heat.close_c else 0
    return Streak(hot, cool, lost, present)


def judge(
    card: Card, streak: Streak, seen: Seen, boot_id: str, opened: Collection[Incident], rules: Rules, *, is_in_grace: bool
) -> list[Decision]:
    """What follows from a card's sample; `streak` is already with it, `opened` are the card's open incidents."""
    by_kind = {incident.kind: incident for incident in opened}
    heat = rules.heat_of(card.model)
    found: list[Decision] = []
    if "gpu-hot" not in by_kind and streak.hot >= heat.open_samples:
        told = f"{seen.temperature_c} °C, at or above {heat.open_c} °C for {streak.hot} samples in a row"
        found.append(Opening("gpu-hot", card.uuid, "evict", f"{_named(card)}: {told}"))
    if "gpu-lost" not in by_kind and streak.lost >= rules.lost_samples and not is_in_grace:
        found.append(Opening("gpu-lost", card.uuid, "evict", f"{_named(card)}: lost in {streak.lost} samples in a row"))
    if "ecc-uncorrectable" not in by_kind and seen.new_errors > 0:
        found.append(Opening("ecc-uncorrectable", card.uuid, "evict", f"{_named(card)}: {seen.new_errors} new uncorrectable ECC errors"))
    for incident in opened:
        evidence = _recovery(incident, streak, seen, boot_id, heat, rules)
        if evidence is not None:
            found.append(Closing(incident, f"{_named(card)}: {evidence}"))
    return found


def _recovery(incident: Incident, streak: Streak, seen: Seen, boot_id: str, heat: Heat, rules: Rules) -> str | None:
    """What shows that the incident is over, or None."""
    if incident.kind == "gpu-hot" and streak.cool >= heat.close_samples:
        return f"{seen.temperature_c} °C, below {heat.close_c} °C for {streak.cool} samples in a row"
    if streak.present < rules.clean_samples:
        return None
    if incident.kind == "gpu-lost":
        return f"there again in {streak.present} samples in a row"
    if incident.kind in HEALED_BY_REBOOT and incident.boot_id != boot_id and seen.new_errors == 0:
        return f"the node has booted since (boot {boot_id}); {streak.present} samples in a row without a fault"
    return None


def is_noteworthy(temperature_c: int | None, is_lost: bool, new_errors: int, heat: Heat) -> bool:
    """Whether a sample of a card without streak and incident needs a judgement at all: one in ten thousand does."""
    return is_lost or new_errors > 0 or (temperature_c is not None and temperature_c >= heat.open_c)


def is_settled(streak: Streak) -> bool:
    """Whether a card without open incidents needs no streak: nothing bad is being counted."""
    return streak.hot == 0 and streak.lost == 0


def without_hardware(opened: Collection[Incident], uuids: Collection[str], boot_id: str) -> list[Closing]:
    """Incidents of cards that are no part of their node any more.

    A card that was lost or fell off the bus is missing because of the incident: that is over only after a boot without the card.
    """
    return [
        Closing(incident, f"{incident.gpu_uuid} is no longer part of node {incident.node_id}")
        for incident in opened
        if incident.gpu_uuid is not None
        and incident.gpu_uuid not in uuids
        and (incident.kind not in ("gpu-lost", "xid-fatal") or incident.boot_id != boot_id)
    ]


def _named(card: Card) -> str:
    return f"{card.uuid} ({card.model})" if card.model else card.uuid
