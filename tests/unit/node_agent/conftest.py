"""A node without processes for each test."""

from pathlib import Path

import pytest

from tests.unit.node_agent.agent_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node with four cards, a lease, and nothing running."""
    return World(tmp_path)
