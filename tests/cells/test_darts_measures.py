"""DARTS in a scoring, against the plain network of one genotype."""

import jax
import jax.numpy as jnp
import numpy as np
import plain_darts
import pytest
from plain_darts import unstacked
from tiny import scored

from cells.darts import Darts, Genotype
from cells.darts.forward import NODES, STEP, merged
from ntkscore import Config, Model, Task
from ntkscore.measures.activations import equal_states
from ntkscore.measures.forward_pass import Pass
from ntkscore.space import SIDE_BY_SIDE

N, MEAN, STD = 4, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
SPACE = Darts(task=Task((8, 8, 3), 4, MEAN, STD), channels=2, layers=6)
# Every operation stands in it, in both cells, from inputs and from nodes.
GENOTYPE = Genotype.parse("4031402112635234-7160117141712231")
BLOCKS = ("expressivity", "progressivity", "trainability")
"""Measures of the cells' outputs; a trace has blocks of its own."""
RECTIFIERS = ("naswot", "flips", "near", "meco", "dextr")
"""Measures that count rectifiers; a trace merges those that read the same values."""
DRAWN = ("zen",)
"""Measures with weights of their own, drawn for the tree that holds them."""
ROUNDING = ("fisher_entropy",)
"""Of four images and four classes it is that of one eigenvalue."""

pytestmark = [pytest.mark.usefixtures("double"), pytest.mark.slow]


def given():
    rng = np.random.default_rng(0)
    return rng.random((N, 8, 8, 3)), np.array([0, 3, 1, 2])


def model_of(space, genotype, images):
    code = jax.tree.map(jnp.asarray, space.encode(genotype))
    return space.model((), space.draw((), 0, np.float64), code, jnp.asarray(images))


def plain(model, stats):
    """The plain network's weights, and its logits as a function of them."""
    stats = unstacked(stats)

    def apply(params, x):
        x = (x - jnp.array(MEAN)) / jnp.array(STD)
        return plain_darts.network(params, stats, GENOTYPE, SPACE, x)

    return apply, unstacked(model.params, GENOTYPE)


@pytest.mark.thorough
def test_rectifiers_and_outputs_of_cells_are_those_of_the_plain_network(monkeypatch):
    (images, labels), inputs, outputs = given(), [], []
    model = model_of(SPACE, GENOTYPE, images)
    at = Pass(model, jnp.asarray(images), jnp.asarray(labels))
    same, logits = equal_states(at), model.apply(model.params, jnp.asarray(images))
    _, residuals = model.passes.forward(model.params, jnp.asarray(images))
    groups = model.passes.activations(model.params, residuals).features
    features = [np.asarray(one) for group in groups for one in group]
    apply, params = plain(model, model.passes.statistics)
    relu, cell, conv = jax.nn.relu, plain_darts.cell, plain_darts.conv
    monkeypatch.setattr(jax.nn, "relu", lambda x: (inputs.append(np.asarray(x)), relu(x))[1])

    def seen(*arguments):
        outputs.append(np.asarray(cell(*arguments)))
        return outputs[-1]

    monkeypatch.setattr(plain_darts, "cell", seen)
    with jax.disable_jit():
        np.testing.assert_allclose(apply(params, jnp.asarray(images)), logits, rtol=1e-9)
    on = np.concatenate([each.reshape(N, -1) > 0 for each in inputs], 1).astype(float)
    np.testing.assert_array_equal(same, on @ on.T + (1 - on) @ (1 - on).T)
    stem = (jnp.asarray(images) - jnp.array(MEAN)) / jnp.array(STD)
    stem = conv(stem, params["stem"]["kernel"])
    stem = plain_darts.bn(stem, params["stem"], model.passes.statistics["stem"])
    for got, want in zip(features, [np.asarray(stem), *outputs], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.thorough
def test_pullbacks_are_those_of_each_cell_by_itself():
    images, _ = given()
    model = model_of(SPACE, GENOTYPE, images)
    _, residuals = model.passes.forward(model.params, jnp.asarray(images))
    pairs = model.passes.pullbacks(model.params, residuals, jax.random.key(0))
    params, stats = (unstacked(tree) for tree in (model.params, model.passes.statistics))
    normal, pairs = SPACE.normal_cells, iter(pairs)

    def agrees(function, x, dx, signs):
        _, pull = jax.vjp(function, x)
        np.testing.assert_allclose(dx, pull(signs)[0], rtol=1e-9, atol=1e-12)
        assert set(np.unique(signs)) == {-1.0, 1.0}

    for stage, nodes in enumerate(residuals.stages):
        if stage:
            before, last = (merged(residuals.stages[stage - 1], k) for k in (-STEP - NODES, -NODES))
            w, s = params[f"reduction_{stage}"], stats[f"reduction_{stage}"]

            def reduction(x, before=before, w=w, s=s):
                inputs = [
                    plain_darts.preprocess(z, w[f"input_{k}"], s[f"input_{k}"])
                    for k, z in enumerate((before, x))
                ]
                return plain_darts.cell(GENOTYPE.reduce, inputs, w["edges"], s["edges"], 2)

            (dx,), (signs,) = next(pairs)
            agrees(reduction, last, dx, signs)
        w, s = params[f"stage_{stage}"], stats[f"stage_{stage}"]
        of_stage, of_signs = next(pairs)
        for t in range(normal[stage]):
            entering = merged(nodes, STEP * t)
            if stage == 0 and t == 0:
                entering = entering[..., : SPACE.channels * 3]

            def cell(x, stage=stage, t=t, nodes=nodes, w=w, s=s):
                # The other input is the cell's before it, which stays as it is; the stem is both.
                first = nodes[STEP * t + NODES]
                if (stage, t) == (0, 0):
                    first = plain_darts.preprocess(x, w["input_0"][0], s["input_0"][0])
                second = plain_darts.preprocess(x, w["input_1"][t], s["input_1"][t])
                edges = w["edges"][t], s["edges"][t]
                return plain_darts.cell(GENOTYPE.normal, (first, second), *edges, 1)

            dx = of_stage[t][..., : entering.shape[-1]]
            agrees(cell, entering, dx, of_signs[t])


@pytest.mark.thorough
@pytest.mark.parametrize("bn", ["calibrated", "instance", "batch", "init"])
def test_every_measure_is_that_of_the_plain_network(bn, monkeypatch):
    images, labels = given()
    space = Darts(task=SPACE.task, channels=2, layers=6, bn=bn)
    config = Config(x64=True, proxies=bn != "batch")
    own = scored(GENOTYPE, images, labels, config, space=space, mean=MEAN, std=STD, num_classes=4)
    model = model_of(space, GENOTYPE, images)
    stats = space.draw((), 0, np.float64)["batch_stats"]
    apply, params = plain(model, model.passes.statistics if model.passes else stats)
    axes = {"instance": (1, 2), "batch": (0, 1, 2)}.get(bn)
    if axes is not None:

        def live(z, p, _):
            mean, var = jnp.mean(z, axes, keepdims=True), jnp.var(z, axes, keepdims=True)
            return (z - mean) / jnp.sqrt(var + 1e-5) * p["scale"] + p["shift"]

        monkeypatch.setattr(plain_darts, "bn", live)

    def by_batches(params, x):
        sets = x.reshape(-1, min(len(x), len(images)), *x.shape[1:])
        return jnp.concatenate([apply(params, one) for one in sets])

    coupled = bn == "batch"
    network = Model(by_batches if coupled else apply, params, coupled=coupled)
    other = scored(network, images, labels, config)
    index = ["kernel", "beta", "score"]
    both = own.merge(other, on=index, suffixes=("", "_plain"), validate="1:1")
    assert len(both) == len(own) == len(other)
    left_out = [*BLOCKS, *RECTIFIERS, *DRAWN, *ROUNDING]
    # A pooling of 2×2 pixels is constant: by its own statistics gradients are zero, or rounding.
    left_out += ["zico"] if bn == "instance" else []
    defined = ~both["score"].isin(left_out)
    both = both[defined & (both["status_plain"] != "not_given")]
    assert len(both) > 50
    assert (both["status"] == both["status_plain"]).all()
    np.testing.assert_allclose(both["value"], both["value_plain"], rtol=1e-6)


@pytest.mark.thorough
def test_networks_side_by_side_are_those_alone():
    images, labels = given()
    x, genotypes = jnp.asarray(images), [GENOTYPE, Genotype.parse("DARTS")]
    variables = SPACE.draw((), 0, np.float64)

    def parts(code):
        model = SPACE.model((), variables, code, x)
        logits, residuals = model.passes.forward(model.params, x)
        g = model.passes.gradient(model.params, residuals, jnp.ones_like(logits))
        return logits, g, equal_states(Pass(model, x, jnp.asarray(labels)))

    codes = [jax.tree.map(jnp.asarray, SPACE.encode(each)) for each in genotypes]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *codes)
    together = jax.jit(jax.vmap(parts, axis_name=SIDE_BY_SIDE))(stacked)
    alone = jax.jit(parts)
    for k, code in enumerate(codes):
        for one, group in zip(alone(code), together, strict=True):
            np.testing.assert_allclose(group[k], one, rtol=1e-9, atol=1e-11)


@pytest.mark.thorough
def test_training_is_the_plain_network_by_batch_and_by_stored_statistics(monkeypatch):
    images, _ = given()
    x, network = jnp.asarray(images), SPACE.trainable(GENOTYPE, dtype=np.float64)
    logits, moved = jax.jit(network.train)(network.params, network.statistics, x)
    again = jax.jit(network.evaluate)(network.params, moved, x)
    apply, params = plain(network, moved)
    np.testing.assert_allclose(again, jax.jit(apply)(params, x), rtol=1e-9)
    variances = []

    def live(z, p, s):
        mean, var = jnp.mean(z, (0, 1, 2)), jnp.var(z, (0, 1, 2))
        count = z.size // z.shape[-1]
        variances.append((s["var"], 0.9 + 0.1 * var * count / (count - 1)))
        return (z - mean) / jnp.sqrt(var + 1e-5) * p["scale"] + p["shift"]

    monkeypatch.setattr(plain_darts, "bn", live)
    np.testing.assert_allclose(jax.jit(lambda p: apply(p, x))(params), logits, rtol=1e-9)
    # Traced once by `jit`; a second time for numbers.
    variances.clear()
    with jax.disable_jit():
        apply(params, x)
    for stored, expected in variances:
        np.testing.assert_allclose(stored, expected, rtol=1e-9)
