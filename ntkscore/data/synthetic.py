"""The embedded default image set: coloured noise with natural spectra and class structure."""

import numpy as np

COUNT, CLASSES, SEED = 1000, 10, 201


def synthetic_images(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw class-structured colour images with the spectra of natural images.

    A class is a palette of two colours, an oriented grating and a smooth template. An image
    mixes its class's shapes (grating at a phase of its own) with a 1/f field of its own, the
    mixture blends one colour of the palette into the other, and both colours are tinted by the
    image's own light.

    Args:
        size: height and width in pixels.

    Returns:
        Images (1000, size, size, 3) uint8 and labels (1000,); image i has label i modulo 10, so
        that any run of images is balanced.
    """
    rng = np.random.Generator(np.random.PCG64(SEED))
    labels = np.arange(COUNT) % CLASSES

    dark = rng.uniform(0.0, 0.45, (CLASSES, 3))
    light = rng.uniform(0.55, 1.0, (CLASSES, 3))
    templates = _pink_noise(rng, CLASSES, size)
    angle = np.pi * np.arange(CLASSES) / CLASSES
    cycles = 1.5 + np.arange(CLASSES) % 3
    y, x = np.mgrid[:size, :size] / size
    position = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y

    phase = rng.uniform(0.0, 2 * np.pi, (COUNT, 1, 1))
    grating = np.cos(2 * np.pi * cycles[labels, None, None] * position[labels] + phase)
    shape = 0.5 * grating + 0.5 * templates[labels] + _pink_noise(rng, COUNT, size)
    exposure = rng.normal(0.0, 0.8, (COUNT, 1, 1))
    blend = (1 / (1 + np.exp(-1.5 * shape - exposure)))[..., None]

    # Chroma varies less than luminance in natural images: a weak field along one hue per image.
    hue = rng.normal(0.0, 0.1, (COUNT, 1, 1, 3))
    chroma = hue * _pink_noise(rng, COUNT, size)[..., None]
    tint = rng.normal(0.0, 0.1, (COUNT, 1, 1, 3))
    dark, light = dark[labels, None, None], light[labels, None, None]
    pixels = np.clip(dark + blend * (light - dark) + tint + chroma, 0.0, 1.0)
    # Stored in 8 bits, the set is the same on machines whose Fourier transforms round differently.
    return np.rint(255 * pixels).astype(np.uint8), labels


def _pink_noise(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Fields (count, size, size) of zero mean and unit variance with amplitude 1/f^1.4.

    Photographs follow 1/f at full resolution; scaled down to this size, CIFAR's fall like this.
    """
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size))
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((count, size, size))) * frequency**-1.4
    field = np.fft.irfft2(spectrum, (size, size))
    return field / field.std(axis=(-2, -1), keepdims=True)
