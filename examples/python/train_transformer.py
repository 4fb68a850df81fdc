"""Data-parallel training of a small transformer with PyTorch's DistributedDataParallel.

It learns to reverse sequences of digits. Gradients are averaged in buckets while the backward pass goes on.

./dev exec mpiexec -n 2 python examples/python/train_transformer.py                  # needs PyTorch
./dev exec mpiexec -n 2 python examples/python/train_transformer.py --backend gloo   # the same losses
"""

from __future__ import annotations

import argparse
import time

import penstock.torch
import torch
import torch.distributed as dist
from torch import nn

DIGITS, LENGTH = 10, 12


class Reverser(nn.Module):
    """Reads a sequence and says at each position what stands there in the reversed one."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.digits = nn.Embedding(DIGITS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        block = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.output = nn.Linear(width, DIGITS)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        return self.output(self.blocks(self.digits(sequences) + self.positions))


def batch(step: int, rank: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each rank draws its own sequences, the same ones in each run."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    sequences = torch.randint(DIGITS, (samples, LENGTH), generator=generator)
    return sequences, sequences.flip(1)


def train(arguments: argparse.Namespace) -> tuple[list[float], float, nn.Module]:
    """Mean losses over all ranks, seconds per step, and the trained network."""
    torch.manual_seed(0)  # the same weights on all ranks
    network = Reverser(arguments.width, arguments.layers)
    model = nn.parallel.DistributedDataParallel(
        network, bucket_cap_mb=arguments.bucket_mb, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate)
    losses, begin = [], time.perf_counter()
    for step in range(arguments.steps):
        sequences, reversed_ones = batch(step, dist.get_rank(), arguments.samples)
        scores = model(sequences)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), reversed_ones.flatten())
        optimizer.zero_grad()
        loss.backward()  # each bucket is on its way as soon as its gradients are known
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.SUM)
        losses.append(mean.item() / dist.get_world_size())
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {losses[-1]:.6f}", flush=True)
    return losses, (time.perf_counter() - begin) / arguments.steps, network


def check_equal_on_all_ranks(network: nn.Module) -> None:
    weights = torch.cat([weight.detach().flatten() for weight in network.parameters()])
    everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, weights)
    assert all(torch.equal(each, weights) for each in everyone), "the ranks drifted apart"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("penstock", "gloo"), default="penstock")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32, help="of each rank in a step")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--bucket-mb", type=float, default=0.25)
    parser.add_argument(
        "--progress-cores", default="auto", help="communication cores of each node: auto, 0, or a number"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # of each rank

    options = None
    if arguments.backend == "penstock":
        cores = arguments.progress_cores
        options = penstock.torch.Options(progress_cores=cores if cores == "auto" else int(cores))
    dist.init_process_group(arguments.backend, pg_options=options)  # ranks and store come from MPI

    losses, seconds, network = train(arguments)
    check_equal_on_all_ranks(network)
    assert losses[-1] < losses[0], losses
    if dist.get_rank() == 0:
        print(
            f"{arguments.backend}, {dist.get_world_size()} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f} in "
            f"{arguments.steps} steps of {1e3 * seconds:.1f} ms"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
