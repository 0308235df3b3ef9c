"""What it costs: allocations' intervals times prices, in a ledger that can be proved right.

Owns: price books, the ledger (transactions and entries, never changed once written), balances, the billed interval of every allocation.
Hears: placement's allocations (committed, started, released), the nodes' usage ticks (evidence).
Says: that money was posted. Answers for prices, usage, balances, entries, and whether the ledger is right.
Never: estimates what it cannot prove; bills beyond the last confirmed instant; changes a price for time that is already billed.

Start reading at `domain/settle.py`.
"""
