#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The classifier of pairs beside scikit-learn's GradientBoostingClassifier with its defaults, on the
same pairs and the same groups of programs left out.

    cargo run --release -p scx_hetero-learn --example ml_pairs models/alder-lake-4p4e.csv >pairs.csv
    experiments/ml-peers/compare.py pairs.csv
"""

import sys
import time

import numpy
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.preprocessing import MinMaxScaler

table = numpy.loadtxt(sys.argv[1], delimiter=",")
y, groups, X = table[:, 0], table[:, 1:3].astype(int), table[:, 3:]
last = groups.max() + 1
is_, said = [], []
for first in range(last):
    for second in range(first + 1):
        pair = sorted((first, second))
        out = (numpy.sort(groups, axis=1) == pair).all(axis=1)
        learnt = ~numpy.isin(groups, pair).any(axis=1)
        scaler = MinMaxScaler().fit(X[learnt])
        model = GradientBoostingClassifier(random_state=1).fit(scaler.transform(X[learnt]), y[learnt])
        is_ += list(y[out])
        said += list(model.predict(scaler.transform(X[out])))
begin = time.perf_counter()
model = GradientBoostingClassifier(random_state=1).fit(X, y)
learnt = time.perf_counter() - begin
begin = time.perf_counter()
model.predict(X)
asked = (time.perf_counter() - begin) / len(X)
begin = time.perf_counter()
for row in X[:200]:
    model.predict(row[None, :])
single = (time.perf_counter() - begin) / 200
print(f"scikit-learn: {100 * accuracy_score(is_, said):.1f}% of {len(is_)} pairs both ways round, precision "
      f"{precision_score(is_, said):.3f}, recall {recall_score(is_, said):.3f}, F1 {f1_score(is_, said):.3f}; learnt "
      f"{len(X)} rows in {learnt:.2f} s, one answer takes {1e6 * asked:.1f} us of many, {1e6 * single:.0f} us alone")
