"""One step of Adam with decoupled weight decay: parameters, gradients and both moments are read once,
and new parameters and moments written once. Eager PyTorch walks over them a dozen times.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rate, beta1, beta2, decay, step, eps=1e-8):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.decay, self.eps = rate, beta1, beta2, decay, eps
        self.correction1 = 1.0 - beta1**step
        self.correction2 = 1.0 - beta2**step

    def forward(self, weight, gradient, mean, square):
        mean = self.beta1 * mean + (1.0 - self.beta1) * gradient
        square = self.beta2 * square + (1.0 - self.beta2) * gradient * gradient
        spread = (square / self.correction2).sqrt() + self.eps
        weight = weight * (1.0 - self.rate * self.decay)
        return weight - self.rate * (mean / self.correction1) / spread, mean, square


n_rows = 8192
n_cols = 4096


def get_inputs():
    weight = 0.02 * torch.randn(n_rows, n_cols)
    gradient = torch.randn(n_rows, n_cols)
    mean = 0.3 * torch.randn(n_rows, n_cols)
    return [weight, gradient, mean, 0.1 + torch.rand(n_rows, n_cols)]


def get_init_inputs():
    return [0.01, 0.9, 0.95, 0.1, 100]
