"""A small convolutional network in NumPy: float32, real forward and backward passes, SGD with momentum.

Loss and gradients are sums over samples, so they add up over ranks. `update` divides by the number of samples in the global
batch. The result does not depend on the distribution of the batch over ranks, up to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

CHANNELS = (3, 12, 24, 32)
HIDDEN = 160
LEARNING_RATE = 0.01
MOMENTUM = 0.9


class Network:
    """Three times (3x3 convolution, ReLU, 2x2 average pooling), then two dense layers and softmax.

    `parameters` and `momentum` are flat vectors, so a checkpoint or a redistribution handles one array each; the layers use views
    of them. `gradients` has the same structure, and `backward` yields it piece by piece.
    """

    def __init__(self, image_size: int, classes: int, seed: int) -> None:
        sizes = []
        side = image_size
        for c_in, c_out in pairwise(CHANNELS):
            sizes += [((c_in * 9, c_out), np.sqrt(2 / (c_in * 9))), ((c_out,), 0)]
            side //= 2
        features = side * side * CHANNELS[-1]
        sizes += [((features, HIDDEN), np.sqrt(2 / features)), ((HIDDEN,), 0)]
        sizes += [((HIDDEN, classes), np.sqrt(1 / HIDDEN)), ((classes,), 0)]
        rng = np.random.default_rng(seed)
        total = sum(int(np.prod(shape)) for shape, _ in sizes)
        self.parameters = np.empty(total, np.float32)
        self.gradients = np.empty(total, np.float32)
        self.momentum = np.zeros(total, np.float32)
        weights, self._pieces = [], []
        offset = 0
        for shape, scale in sizes:
            piece = slice(offset, offset + int(np.prod(shape)))
            self.parameters[piece] = (rng.standard_normal(shape) * scale).ravel()
            weights.append(self.parameters[piece].reshape(shape))
            self._pieces.append((piece, shape))
            offset = piece.stop
        self._weights = weights
        self._saved: list[tuple] = []
        self._output_gradient = np.empty(0, np.float32)

    def forward(self, images: np.ndarray, labels: np.ndarray) -> float:
        """The sum of the samples' losses. `images` is uint8 of shape (n, height, width, 3); n may be 0."""
        x = images.astype(np.float32) * np.float32(1 / 127.5) - np.float32(1)
        self._saved = []
        for layer in range(len(CHANNELS) - 1):
            weight, bias = self._weights[2 * layer], self._weights[2 * layer + 1]
            columns = _columns(x)
            y = columns @ weight + bias
            np.maximum(y, 0, out=y)
            n, height, width, _ = x.shape
            y = y.reshape(n, height, width, weight.shape[1])
            self._saved.append((columns, y > 0, x.shape))
            x = _pool(y)
        flat = x.reshape(len(images), self._weights[-4].shape[0])
        hidden = np.maximum(flat @ self._weights[-4] + self._weights[-3], 0)
        logits = hidden @ self._weights[-2] + self._weights[-1]
        logits -= logits.max(axis=1, keepdims=True) if len(logits) else 0
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        chosen = logits[np.arange(len(labels)), labels]
        self._saved.append((flat, hidden, x.shape))
        logits[np.arange(len(labels)), labels] -= 1
        self._output_gradient = logits
        return float(-np.log(np.maximum(chosen, 1e-30)).sum())

    def backward(self) -> Iterator[np.ndarray]:
        """Yields the gradients of the last forward pass, layer by layer from the last one. A yielded piece is final: it may be
        summed over the ranks in place while the next one is computed."""
        flat, hidden, shape = self._saved[-1]
        g = self._output_gradient
        self._piece(-2)[:] = hidden.T @ g
        self._piece(-1)[:] = g.sum(axis=0)
        yield self._both(-2)
        g = (g @ self._weights[-2].T) * (hidden > 0)
        self._piece(-4)[:] = flat.T @ g
        self._piece(-3)[:] = g.sum(axis=0)
        yield self._both(-4)
        g = (g @ self._weights[-4].T).reshape(shape)
        for layer in reversed(range(len(CHANNELS) - 1)):
            columns, positive, input_shape = self._saved[layer]
            g = _unpool(g) * positive
            g = g.reshape(-1, g.shape[-1])
            self._piece(2 * layer)[:] = columns.T @ g
            self._piece(2 * layer + 1)[:] = g.sum(axis=0)
            yield self._both(2 * layer)
            if layer:
                g = _image_gradient(g @ self._weights[2 * layer].T, input_shape)

    def update(self, samples: int) -> None:
        """One step of SGD with the current gradients, which are sums over `samples` samples."""
        self.momentum *= np.float32(MOMENTUM)
        self.momentum += self.gradients * np.float32(1 / max(samples, 1))
        self.parameters -= np.float32(LEARNING_RATE) * self.momentum

    def _piece(self, index: int) -> np.ndarray:
        piece, shape = self._pieces[index]
        return self.gradients[piece].reshape(shape)

    def _both(self, index: int) -> np.ndarray:
        """Weights and biases of a layer, which are adjacent."""
        return self.gradients[self._pieces[index][0].start : self._pieces[index + 1][0].stop]


def _columns(x: np.ndarray) -> np.ndarray:
    """3x3 neighbourhoods with zero padding, as rows: (n * height * width, channels * 9)."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return windows.reshape(-1, x.shape[3] * 9)


def _image_gradient(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The transpose of _columns."""
    n, height, width, channels = shape
    windows = columns.reshape(n, height, width, channels, 3, 3)
    padded = np.zeros((n, height + 2, width + 2, channels), np.float32)
    for i in range(3):
        for j in range(3):
            padded[:, i : i + height, j : j + width] += windows[..., i, j]
    return padded[:, 1:-1, 1:-1]


def _pool(y: np.ndarray) -> np.ndarray:
    n, height, width, channels = y.shape
    return y.reshape(n, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4), dtype=np.float32)


def _unpool(g: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(g * np.float32(0.25), 2, axis=1), 2, axis=2)
