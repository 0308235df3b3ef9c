"""Rules from settings."""

import pytest
from gpuyard_monitor.domain.rules import Heat
from gpuyard_monitor.settings import MonitorSettings, rules_of
from pydantic import ValidationError


def test_rules_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_MONITOR_HEAT", '{"T4": {"open_c": 80, "close_c": 70}}')
    monkeypatch.setenv("GPUYARD_MONITOR_XID_ACTIONS", '{"109": "none"}')
    rules = rules_of(MonitorSettings())
    assert rules.heat_of("T4") == Heat(open_c=80, close_c=70)
    assert rules.heat_of("A100-80GB") == Heat()
    assert rules.xid_actions == {109: "none"}


@pytest.mark.parametrize("heat", ['{"*": {"open_c": 70, "close_c": 80}}', '{"*": {"open": 70}}', '{"*": {"open_samples": 0}}', "[]"])
def test_thresholds_that_make_no_sense_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, heat: str) -> None:
    monkeypatch.setenv("GPUYARD_MONITOR_HEAT", heat)
    with pytest.raises((ValidationError, ValueError)):
        MonitorSettings()
