"""What is wrong with the hardware: telemetry watched, faults opened and closed as incidents, with evidence.

Owns: incidents, rules and thresholds, what it knows of each node's cards and boots; in memory the last sample of every card.
Hears: telemetry (as it comes, without a durable), health events of nodes, placement's word on nodes (enrolled, silent, heard again).
Says: incident opened, incident closed. Answers how the cards are and which incidents there are or were.
Never: touches a node or a job; takes silence for health; raises the alarm for what was seen once.

Start reading at `domain/judge.py`.
"""
