"""Which cards of a node belong together: links (NVLink, xGMI) and sockets.

Sets of cards are bit masks over their positions. All answers are remembered by layout, and machines of one make share a layout, so that in
a large fleet each question is worked out once.
"""


class Layout:
    """How the cards of one kind on a node are wired. A link counts only if both ends tell of it."""

    __slots__ = ("_chosen", "_joined", "_links", "_numas")

    def __init__(self, links: tuple[frozenset[int], ...], numas: tuple[int | None, ...]) -> None:
        self._links = tuple(
            frozenset(peer for peer in peers if 0 <= peer < len(links) and here in links[peer]) for here, peers in enumerate(links)
        )
        self._numas = numas
        self._joined: dict[int, int] = {}
        self._chosen: dict[tuple[int, int], tuple[int, ...]] = {}

    def joined(self, mask: int) -> int:
        """The size of the largest linked set among these cards; 1 where none are linked, 0 for no cards."""
        found = self._joined.get(mask)
        if found is None:
            found = self._joined[mask] = max((len(group) for group in self._groups(mask)), default=0)
        return found

    def choose(self, mask: int, count: int) -> tuple[int, ...]:
        """`count` positions among these cards, in order; the mask must have so many.

        The smallest linked set that has enough, so that larger ones stay whole; else cards of one socket; else the largest sets first.
        """
        found = self._chosen.get((mask, count))
        if found is None:
            found = self._chosen[mask, count] = tuple(sorted(self._choose(mask, count)))
        return found

    def _choose(self, mask: int, count: int) -> list[int]:
        groups = self._groups(mask)
        enough = [group for group in groups if len(group) >= count]
        if enough:
            return self._part(min(enough, key=lambda group: (len(group), group[0])), count)
        by_socket: dict[int, int] = {}
        for position in _positions(mask):
            numa = self._numas[position]
            if numa is not None:
                by_socket[numa] = by_socket.get(numa, 0) | 1 << position
        sockets = [socket for socket in by_socket.values() if socket.bit_count() >= count]
        within = self._groups(min(sockets, key=lambda socket: (socket.bit_count(), socket))) if sockets else groups
        taken: list[int] = []
        for group in sorted(within, key=lambda group: (-len(group), group[0])):
            taken.extend(self._part(group, min(count - len(taken), len(group))))
        return taken

    def _part(self, group: list[int], count: int) -> list[int]:
        """`count` cards of a linked set, grown from the least linked one along the most links."""
        if count == len(group):
            return group
        rest = set(group)
        taken: list[int] = []
        while len(taken) < count:
            best = min(rest, key=lambda card: (-len(self._links[card] & set(taken)), len(self._links[card] & rest), card))
            taken.append(best)
            rest.discard(best)
        return taken

    def _groups(self, mask: int) -> list[list[int]]:
        """The linked sets among these cards, each in order."""
        rest = set(_positions(mask))
        groups: list[list[int]] = []
        while rest:
            edge = [min(rest)]
            rest.discard(edge[0])
            group: list[int] = []
            while edge:
                card = edge.pop()
                group.append(card)
                near = self._links[card] & rest
                rest -= near
                edge.extend(sorted(near))
            groups.append(sorted(group))
        return groups


def _positions(mask: int) -> list[int]:
    return [position for position in range(mask.bit_length()) if mask >> position & 1]
