# SPDX-License-Identifier: GPL-2.0-only
"""Trees of scikit-learn as scx_hetero reads them: `scx_hetero train DATA --import KIND=FILE`.

    from export_sklearn import export
    model = GradientBoostingRegressor().fit(X, y)
    print(export(model, ["instructions", "llc-misses"]))

Names are those of docs/ml.md; of a classifier of pairs with `a:` and `b:` before them. `per` is what
events were divided by. If X went through a MinMaxScaler, give it as `scaler`.
"""

import json

import numpy


def node(tree, index, shrinkage):
    if tree.children_left[index] < 0:
        return float(shrinkage * tree.value[index].item())
    return {
        "feature": int(tree.feature[index]),
        "threshold": float(tree.threshold[index]),
        "low": node(tree, tree.children_left[index], shrinkage),
        "high": node(tree, tree.children_right[index], shrinkage),
    }


def export(model, names, per="cycle", scaler=None):
    classes = hasattr(model, "classes_")
    if classes:
        prior = model.init_.class_prior_[1]
        base = float(numpy.log(prior / (1 - prior)))
    else:
        base = float(model.init_.constant_.item())
    ends = zip(scaler.data_min_, scaler.data_max_) if scaler else [(0.0, 1.0)] * len(names)
    return json.dumps({
        "loss": "logistic" if classes else "squared",
        "comparison": "<=",
        "per": per,
        "base": base,
        "features": [{"name": n, "min": float(a), "max": float(b)} for n, (a, b) in zip(names, ends)],
        "trees": [node(stage[0].tree_, 0, model.learning_rate) for stage in model.estimators_],
    })
