"""Writes compare.json: twenty data sets of two columns, and what scipy says about each.

    pip install scipy==1.17.1 numpy==2.4.6
    python compare.py > compare.json

Runs with the same seeds are pairs. The deciding test is of logarithms where every number is positive.
"""

import json
import math

import numpy
import scipy
from scipy import stats

LEVEL = 0.95


def data_sets():
    """Name, runs of the old and the new column by seed."""
    draw = numpy.random.default_rng(44)
    normal = lambda mean, spread, count: (mean + spread * draw.standard_normal(count)).tolist()
    first = lambda values: dict(enumerate(map(float, values), 1))
    others = lambda values: dict(enumerate(map(float, values), 1001))

    def pairs(old, shift, spread):
        return [value + shift + spread * draw.standard_normal() for value in old]

    old = normal(100, 10, 8)
    yield "pairs of 8, a shift", first(old), first(pairs(old, 5, 1))
    old = normal(100, 10, 20)
    yield "pairs of 20, a small shift", first(old), first(pairs(old, 1, 3))
    old = normal(100, 10, 20)
    yield "pairs of 20, no shift", first(old), first(pairs(old, 0, 3))
    yield "pairs of 2", first([10, 12]), first([11, 14])
    yield "pairs of 3", first([10, 12, 9]), first([9, 12.5, 8])
    old = normal(0, 1, 12)
    yield "pairs with negative numbers", first(old), first(pairs(old, 0.8, 0.5))
    old = draw.poisson(3, 16).tolist()
    yield "pairs of small counts with zeros", first(old), first(draw.poisson(6, 16))
    old = draw.lognormal(5, 1, 40).tolist()
    yield "pairs of 40, spread by a factor", first(old), first(value * draw.lognormal(0.1, 0.2) for value in old)
    yield "8 and 8", first(normal(100, 10, 8)), others(normal(110, 10, 8))
    yield "8 and 20", first(normal(100, 10, 8)), others(normal(104, 2, 20))
    yield "20 and 8, unlike spreads", first(normal(100, 1, 20)), others(normal(97, 25, 8))
    yield "5 and 5, far apart", first(normal(10, 1, 5)), others(normal(1000, 1, 5))
    yield "2 and 3", first([1.5, 2.5]), others([2, 3, 5])
    yield "40 and 40, alike", first(normal(1, 0.1, 40)), others(normal(1, 0.1, 40))
    yield "constant and not", first([7] * 8), others(normal(7.5, 0.4, 8))
    yield "with ties", first([1, 1, 2, 2, 3, 3, 3, 4]), others([2, 2, 3, 3, 4, 4, 4, 5, 5])
    yield "zeros on one side", first([0] * 6), others([0, 0, 3, 0, 1, 0, 2])
    yield "negative numbers", first(normal(-5, 2, 10)), others(normal(-3, 4, 12))
    yield "large numbers", first(normal(3e9, 1e7, 10)), others(normal(3.01e9, 1e7, 10))
    yield "small numbers", first(normal(2e-6, 1e-7, 10)), others(normal(1.8e-6, 1e-7, 10))


def test(old, new, are_pairs):
    """p, the difference of means and the ends of its interval."""
    found = stats.ttest_rel(new, old) if are_pairs else stats.ttest_ind(new, old, equal_var=False)
    interval = found.confidence_interval(LEVEL)
    return found.pvalue, numpy.mean(new) - numpy.mean(old), interval.low, interval.high


def expected(old, new):
    are_pairs = list(old) == list(new)
    old, new = list(old.values()), list(new.values())
    p, difference, low, high = test(old, new, are_pairs)
    percent = None
    if min(old + new) > 0:
        p, *logs = test(numpy.log(old), numpy.log(new), are_pairs)
        percent = [100 * math.expm1(value) for value in logs]
    ranks = stats.mannwhitneyu(old, new, use_continuity=True, alternative="two-sided", method="asymptotic")
    return {"p": p, "difference": [difference, low, high], "percent": percent, "p_ranks": ranks.pvalue}


def holm(raw):
    """The largest of (n - i) p(i) over all that are not larger: by the definition, for each by itself."""
    rank = sorted(range(len(raw)), key=lambda at: raw[at])
    adjusted = [min(1.0, (len(raw) - place) * raw[at]) for place, at in enumerate(rank)]
    return [max(adjusted[: rank.index(at) + 1]) for at in range(len(raw))]


def main():
    sets = [
        {"name": name, "old": list(old.items()), "new": list(new.items()), **expected(old, new)}
        for name, old, new in data_sets()
    ]
    assert len(sets) == 20
    for one, p_holm in zip(sets, holm([one["p"] for one in sets])):
        one["p_holm"] = p_holm
    plain = lambda value: value.item()
    lines = ",\n".join(json.dumps(one, default=plain) for one in sets)
    print(f'{{\n"recorded_with": "scipy {scipy.__version__}, numpy {numpy.__version__}",\n"sets": [\n{lines}\n]}}')


main()
