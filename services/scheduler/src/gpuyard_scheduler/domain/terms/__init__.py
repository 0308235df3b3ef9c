"""The terms of a score, one small file for each: ``cost(places, outlook)`` in micro-GPU, the less the better."""
