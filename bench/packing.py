"""How much of a fleet can be allocated, on the openb trace: the experiment of Weng et al. (USENIX ATC'23), and the same with departures.

Filling: tasks are drawn at random until they have asked for all GPUs; one that does not fit is dropped, nothing leaves. Told is the share
of all GPUs that is allocated when 100 % have been asked for (the mean over the arrivals whose share rounds to it), over ten seeds.

Churn: tasks come as a Poisson stream that asks for so many per cent of the GPUs on average and stay for exponential times; told is the
share of the demand that found no room at once, after a warm-up, and how much of it was shares, single cards and several cards. Best fit and
lightest load first are two other weightings of the same `decide`, on the same streams.
"""

import random
import statistics
from collections import Counter
from heapq import heappop, heappush

from gpuyard_scheduler.domain.model import Job
from gpuyard_scheduler.domain.scoring import Weights

from bench.figures import Figures
from bench.scale import Scale
from bench.trace import VARIANTS, Cluster, Task, draw, tasks, why_absent

ASKED_PERCENT = 100
NONE = {"waste": 0, "starved": 0, "kept": 0, "apart": 0, "step": 1000}
POLICIES: dict[str, Weights] = {
    "": Weights(),
    "best_fit.": Weights(**NONE, pack=1000),
    "lightest_load.": Weights(**NONE, spread=1000),
    "fgd.": Weights(**NONE | {"step": 40_000}, fragment=1000),
}
"""By what stands in the key: the default, and what it is held against. FGD with its authors' coarse steps."""
WARM_UP = 1.5
"""Mean lifetimes."""


def measure(figures: Figures, scale: Scale) -> None:
    """Put `openb.<variant>.allocated_percent`, `.place_ms` and `openb_churn.<variant>.l<load>.lost_percent`."""
    absent = why_absent()
    if absent is not None:
        print(f"  {absent}", flush=True)
        return
    for variant in VARIANTS[: scale.openb_variants]:
        found = tasks(variant)
        runs = [fill(Cluster(Weights()), found, seed) for seed in range(scale.openb_seeds)]
        figures.put(f"openb.{variant}.allocated_percent", statistics.mean(share for share, _ in runs))
        figures.put(f"openb.{variant}.place_ms", statistics.median(each for _, each in runs))


def measure_churn(figures: Figures, scale: Scale) -> None:
    """Put `openb_churn.<variant>.l<load>.[<policy>.]lost_percent`, and for the default by size of task."""
    absent = why_absent()
    if absent is not None:
        print(f"  {absent}", flush=True)
        return
    for variant in VARIANTS[: scale.openb_variants]:
        found = tasks(variant)
        for load in scale.openb_loads:
            for name in scale.openb_policies:
                lost = [churn(Cluster(POLICIES[name]), found, load, seed, scale.openb_lifetimes) for seed in range(scale.openb_churn_seeds)]
                key = f"openb_churn.{variant}.l{load}.{name}"
                figures.put(f"{key}lost_percent", statistics.mean(sum(one.values()) for one in lost))
                if not name:
                    for size in ("share", "one", "several"):
                        figures.put(f"{key}lost.{size}_percent", statistics.mean(one[size] for one in lost))


def fill(cluster: Cluster, found: list[Task], seed: int) -> tuple[float, float]:
    """One filling: (percent allocated, milliseconds of `decide` for each task)."""
    chance = random.Random(seed)
    asked, shares = 0, list[float]()
    while (percent := round(100 * asked / cluster.total_milli)) <= ASKED_PERCENT:
        task = draw(found, chance)
        cluster.come(task)
        asked += task.milli
        if round(100 * asked / cluster.total_milli) == percent == ASKED_PERCENT:
            shares.append(100 * cluster.held_milli / cluster.total_milli)
    return statistics.mean(shares), 1000 * cluster.spent_s / cluster.decided


def churn(cluster: Cluster, found: list[Task], load: int, seed: int, lifetimes: float) -> Counter[str]:
    """One stream: percent of the demand that was lost, by size of task. The same seed gives the same stream to every policy."""
    chance = random.Random(seed)
    rate = load * cluster.total_milli / 100 / statistics.mean(task.milli for task in found)
    now, number, asked = 0.0, 0, 0
    ends: list[tuple[float, int, Job, Task]] = []
    lost: Counter[str] = Counter()
    while now < WARM_UP + lifetimes:
        now += chance.expovariate(rate)
        task, stays = draw(found, chance), chance.expovariate(1.0)
        while ends and ends[0][0] <= now:
            _, _, job, ended = heappop(ends)
            cluster.leave(job, ended)
        job = cluster.come(task)
        number += 1
        if job is not None:
            heappush(ends, (now + stays, number, job, task))
        if now > WARM_UP:
            asked += task.milli
            if job is None:
                lost[task.size] += task.milli
    return Counter({size: 100 * milli / asked for size, milli in lost.items()})
