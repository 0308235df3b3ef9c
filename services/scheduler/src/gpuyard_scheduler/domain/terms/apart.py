"""Cards of one rank that are not linked with each other."""

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import Ints, Places


def cost(places: Places, outlook: Outlook) -> Ints:
    """A whole GPU for each card, where no linked set is large enough: more than any other term can save."""
    cards = places.ask.cards
    return (places.joined < cards) * (0 if places.ask.is_share or cards < 2 else cards * 1_000_000)
