"""Common corruptions of small images, by the recipes and constants of CIFAR-10-C.

Written anew: random numbers, and resampling at borders, are not those of the published files.
Frost is left out, since it lays photographs over the image.

Source: Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common
corruptions and perturbations"; constants of their generator of CIFAR-10-C.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from scipy import ndimage

Pixels = Float[np.ndarray, "n h w c"]
"""Images, in [0, 1]."""
Generator = np.random.Generator


def gaussian_noise(x: Pixels, sigma: float, rng: Generator) -> Pixels:
    """Normal noise of standard deviation σ."""
    return x + rng.normal(0, sigma, x.shape)


def shot_noise(x: Pixels, photons: float, rng: Generator) -> Pixels:
    """A Poisson number of photons, so many on average for white."""
    return rng.poisson(x * photons) / photons


def impulse_noise(x: Pixels, share: float, rng: Generator) -> Pixels:
    """A share of the values set to 0 or 1, each as often."""
    drawn = rng.uniform(size=x.shape)
    return np.where(drawn < share / 2, 0, np.where(drawn < share, 1, x))


def defocus_blur(x: Pixels, disk: tuple[float, float], rng: Generator) -> Pixels:
    """Convolution with a disk of a radius in pixels, smoothed by three taps of a width σ."""
    radius, sigma = disk
    places = np.arange(-3, 4)
    inside = (places[:, None] ** 2 + places**2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    for axis in (0, 1):
        inside = ndimage.convolve1d(inside / inside.sum(), taps, axis, mode="constant")
    return ndimage.convolve(x, inside[None, :, :, None], mode="mirror")


def glass_blur(x: Pixels, how: tuple[float, int, int], rng: Generator) -> Pixels:
    """Pixels change places with near ones, between two normal blurs.

    Args:
        x: images.
        how: width σ in pixels, largest shift, times that every pixel is moved.
        rng: of the shifts.
    """
    sigma, shift, times = how
    widths = (0, sigma, sigma, 0)
    z = ndimage.gaussian_filter(x, widths, mode="nearest")
    n, height, width, _ = x.shape
    one = np.arange(n)
    for _ in range(times):
        for i in range(height - shift, shift, -1):
            for j in range(width - shift, shift, -1):
                k, m = i + rng.integers(-shift, shift, n), j + rng.integers(-shift, shift, n)
                there = z[one, k, m].copy()
                z[one, k, m] = z[:, i, j]
                z[:, i, j] = there
    return ndimage.gaussian_filter(z, widths, mode="nearest")


def moved(x: Pixels, angles: np.ndarray, radius: int, sigma: float) -> Pixels:
    """A mean along a line, with the weights of one half of a normal curve.

    Args:
        x: images.
        angles: of the line in each image, in degrees, shape (n,).
        radius, sigma: of the curve, in pixels; it has 2 radius + 1 points.
    """
    points = np.arange(2 * radius + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2))
    n, height, width, _ = x.shape
    rows, columns, one = np.arange(height), np.arange(width), np.arange(n)[:, None, None]
    out = np.zeros_like(x)
    for point, weight in zip(points, weights / weights.sum(), strict=True):
        down, right = (
            np.rint(point * turn(np.radians(angles))).astype(int) for turn in (np.sin, np.cos)
        )
        i = np.clip(rows + down[:, None], 0, height - 1)[:, :, None]
        j = np.clip(columns + right[:, None], 0, width - 1)[:, None, :]
        out += weight * x[one, i, j]
    return out


def motion_blur(x: Pixels, line: tuple[int, float], rng: Generator) -> Pixels:
    """A mean along a line within 45° of the horizontal."""
    return moved(x, rng.uniform(-45, 45, len(x)), *line)


def zoomed(x: Pixels, factor: float) -> Pixels:
    """The middle of the images, enlarged to their size."""
    size = x.shape[1]
    part = int(np.ceil(size / factor))
    first = (size - part) // 2
    middle = x[:, first : first + part, first : first + part]
    out = ndimage.zoom(middle, (1, factor, factor, 1), order=1)
    first = (out.shape[1] - size) // 2
    return out[:, first : first + size, first : first + size]


def zoom_blur(x: Pixels, largest: float, rng: Generator) -> Pixels:
    """The mean of the images and of enlargements by 1, 1.01, … up to a factor."""
    factors = np.arange(1, largest + 0.005, 0.01)
    return (x + sum(zoomed(x, factor) for factor in factors)) / (len(factors) + 1)


def snow(x: Pixels, how: tuple[float, ...], rng: Generator) -> Pixels:
    """Flakes that fall within 45° of the vertical, over a whitened image.

    Args:
        x: images.
        how: mean and deviation of the flakes, their size, their least brightness, radius and σ of
            their fall, share of the image that is not whitened.
        rng: of the flakes.
    """
    mean, deviation, size, least, radius, sigma, share = how
    flakes = zoomed(rng.normal(mean, deviation, (*x.shape[:3], 1)), size)
    flakes = np.clip(np.where(flakes < least, 0, flakes), 0, 1)
    flakes = moved(flakes, rng.uniform(-135, -45, len(x)), int(radius), sigma)
    grey = (x @ [0.299, 0.587, 0.114])[..., None] * 1.5 + 0.5
    whitened = share * x + (1 - share) * np.maximum(x, grey)
    return whitened + flakes + np.rot90(flakes, 2, (1, 2))


def clouds(shape: tuple[int, int], decay: float, rng: Generator) -> np.ndarray:
    """Random height fields in [0, 1] on a torus, by halving squares and diamonds, (n, side, side).

    Args:
        shape: (n, side), the side a power of two.
        decay: the root of the factor by which the noise falls with each halving.
        rng: of the noise.
    """
    n, side = shape
    field, step, noise = np.zeros((n, side, side)), side, 1.0
    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        around = corners + np.roll(corners, -1, 1)
        around = around + np.roll(around, -1, 2)
        middle = around / 4 + noise * rng.uniform(-1, 1, corners.shape)
        field[:, half::step, half::step] = middle
        for axis, place in ((1, np.s_[:, ::step, half::step]), (2, np.s_[:, half::step, ::step])):
            ends = corners + np.roll(corners, -1, 3 - axis)
            near = (ends + middle + np.roll(middle, 1, axis)) / 4
            field[place] = near + noise * rng.uniform(-1, 1, corners.shape)
        step, noise = half, noise / decay**2
    field -= field.min((1, 2), keepdims=True)
    return field / field.max((1, 2), keepdims=True)


def fog(x: Pixels, how: tuple[float, float], rng: Generator) -> Pixels:
    """Clouds of a height and a decay, added; the brightest value keeps its brightness."""
    height, decay = how
    brightest = x.max((1, 2, 3), keepdims=True)
    field = clouds((len(x), x.shape[1]), decay, rng)[..., None]
    return (x + height * field) * brightest / (brightest + height)


def brightness(x: Pixels, more: float, rng: Generator) -> Pixels:
    """The largest colour of each pixel raised, hue and saturation kept."""
    value = x.max(3, keepdims=True)
    raised = np.clip(value + more, 0, 1)
    return np.where(value > 0, x * raised / np.maximum(value, 1e-12), raised)


def contrast(x: Pixels, share: float, rng: Generator) -> Pixels:
    """The distance from each colour's mean shrunk to a share."""
    mean = x.mean((1, 2), keepdims=True)
    return mean + share * (x - mean)


def elastic_transform(x: Pixels, how: tuple[float, float, float], rng: Generator) -> Pixels:
    """A random affine map, then random smooth shifts.

    Args:
        x: images.
        how: size of the shifts, their width σ, and the size of the affine map's, in image sides.
        rng: of both.
    """
    side = x.shape[1]
    size, sigma, apart = (side * part for part in how)
    third, centre = side // 3, side // 2
    corners = centre + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    out = np.empty_like(x)
    for image, made in zip(x, out, strict=True):
        target = corners + rng.uniform(-apart, apart, corners.shape)
        back = np.linalg.solve(np.column_stack([target, np.ones(3)]), corners)
        places = np.tensordot(back[:2].T, grid, 1) + back[2][:, None, None]
        shifts = [
            size * ndimage.gaussian_filter(rng.uniform(-1, 1, (side, side)), sigma, truncate=3)
            for _ in range(2)
        ]
        for colour in range(x.shape[3]):
            mapped = ndimage.map_coordinates(image[..., colour], places, order=1, mode="mirror")
            made[..., colour] = ndimage.map_coordinates(
                mapped, grid + np.array(shifts), order=1, mode="reflect"
            )
    return out


def by_pillow(change: Callable[[Image.Image, Any], Image.Image]) -> Callable[..., Pixels]:
    """A corruption of many images from a change of one in eight bits."""

    def corruption(x: Pixels, how: Any, rng: Generator) -> Pixels:
        eight_bits = np.rint(x * 255).astype(np.uint8)
        images = [change(Image.fromarray(image), how) for image in eight_bits]
        return np.stack([np.asarray(image) for image in images]) / 255

    return corruption


def smaller(image: Image.Image, share: float) -> Image.Image:
    """An image of a share of the side, each pixel a mean, and enlarged again."""
    width, height = image.size
    box = Image.Resampling.BOX
    small = image.resize((int(width * share), int(height * share)), box)
    return small.resize(image.size, box)


def stored(image: Image.Image, quality: int) -> Image.Image:
    """An image after JPEG of a quality."""
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


CORRUPTIONS: dict[str, tuple[Callable[..., Pixels], tuple[Any, ...]]] = {
    "shot_noise": (shot_noise, (500, 250, 100, 75, 50)),
    "motion_blur": (motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "snow": (
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "pixelate": (by_pillow(smaller), (0.95, 0.9, 0.85, 0.75, 0.65)),
    "gaussian_noise": (gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "defocus_blur": (defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "brightness": (brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "fog": (fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "zoom_blur": (zoom_blur, (1.05, 1.10, 1.15, 1.20, 1.25)),
    "glass_blur": (
        glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "impulse_noise": (impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "contrast": (contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "jpeg_compression": (by_pillow(stored), (80, 65, 58, 50, 40)),
    "elastic_transform": (
        elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
}
"""Corruptions in the order of the paper's Table 6, and their constants at severities 1 to 5."""


def corrupted(
    images: UInt8[np.ndarray, "n h w c"], name: str, severity: int, seed: int = 0
) -> UInt8[np.ndarray, "n h w c"]:
    """Images under a corruption.

    Args:
        images: in eight bits, square.
        name: of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: of the random numbers.

    Example:
        >>> grey = np.full((1, 32, 32, 3), 100, np.uint8)
        >>> int(corrupted(grey, "brightness", 5)[0, 0, 0, 0])
        176
    """
    change, constants = CORRUPTIONS[name]
    x = change(images / 255, constants[severity - 1], np.random.default_rng([seed, severity]))
    return (255 * np.clip(x, 0, 1)).astype(np.uint8)
