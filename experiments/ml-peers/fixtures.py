#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes tests/fixtures/ml: trees of scikit-learn and XGBoost, and what they themselves predict.
Needs scikit-learn and xgboost (pip install scikit-learn xgboost)."""

import pathlib

import numpy
import xgboost
from export_sklearn import export
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.preprocessing import MinMaxScaler

NAMES = ["instructions", "llc-misses", "branch-misses"]
PAIRS = [f"{side}:{name}" for side in "ab" for name in NAMES]
out = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/ml"
rng = numpy.random.default_rng(1)
# Such numbers are exact in every way to write them.
X = rng.integers(0, 4096, (200, 3)) / 1024
y = 1 + X[:, 0] / 4 + (X[:, 1] > 2) - X[:, 2] * X[:, 0] / 16
P = rng.integers(0, 4096, (200, 6)) / 1024
c = (P[:, 0] - P[:, 3] + (P[:, 1] > P[:, 4]) > 0.3).astype(int)

scaler = MinMaxScaler().fit(X)
regressor = GradientBoostingRegressor(n_estimators=20).fit(scaler.transform(X), y)
(out / "sklearn-regressor.json").write_text(export(regressor, NAMES, scaler=scaler) + "\n")
classifier = GradientBoostingClassifier(n_estimators=20).fit(P, c)
(out / "sklearn-classifier.json").write_text(export(classifier, PAIRS) + "\n")
boosted = xgboost.XGBRegressor(n_estimators=20, max_depth=4)
boosted.fit(X, y)
boosted.get_booster().feature_names = NAMES
boosted.save_model(out / "xgboost-regressor.json")
classes = xgboost.XGBClassifier(n_estimators=20, max_depth=3)
classes.fit(P, c)
classes.get_booster().feature_names = PAIRS
classes.save_model(out / "xgboost-classifier.json")

new = rng.integers(0, 4096, (100, 6)) / 1024
columns = {
    "sklearn-regressor": regressor.predict(scaler.transform(new[:, :3])),
    "sklearn-classifier": classifier.decision_function(new),
    "xgboost-regressor": boosted.get_booster().inplace_predict(new[:, :3]),
    "xgboost-classifier": classes.get_booster().inplace_predict(new, predict_type="margin"),
}
with open(out / "predictions.csv", "w") as file:
    print(*(f"x{n}" for n in range(6)), *columns, sep=",", file=file)
    for row, said in zip(new, zip(*columns.values())):
        print(*row, *(f"{value:.7f}" for value in said), sep=",", file=file)
