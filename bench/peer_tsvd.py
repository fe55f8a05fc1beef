"""One truncated SVD of a peer, for comparison with bench_tsvd.

    peer_tsvd.py svd|lowrank|randomized FILE OPTIMUM THREADS REPEATS

svd is torch.linalg.svd cut to the rank, lowrank is torch.svd_lowrank (as it comes: two power
iterations), randomized is scikit-learn's TruncatedSVD (as it comes). Prints the same as
bench_tsvd: median and best time, relative error, the part it exceeds the optimum by, and
the peak of memory beyond the matrix. Exits with 3 when the peer is not installed.
"""

import os
import resource
import sys
import time

method, path, optimum, threads, repeats = sys.argv[1:]
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = threads

import numpy as np

try:
    if method == "randomized":
        from sklearn.decomposition import TruncatedSVD
    else:
        import torch
except ImportError:
    sys.exit(3)

ROWS, WIDTH, RANK = 30522, 768, 128


def decompose(a):
    if method == "randomized":
        model = TruncatedSVD(RANK, random_state=0)
        return model.fit_transform(a), model.components_
    with torch.no_grad():
        if method == "svd":
            u, s, vh = torch.linalg.svd(torch.from_numpy(a), full_matrices=False)
        else:
            u, s, v = torch.svd_lowrank(torch.from_numpy(a), q=RANK)
            vh = v.T
        return (u[:, :RANK] * s[:RANK]).numpy(), vh[:RANK].numpy()


def relative_error(a, left, right):
    lost = total = 0.0
    for first in range(0, ROWS, 2048):
        x = a[first:first + 2048].astype(np.float64)
        lost += ((x - left[first:first + 2048].astype(np.float64) @ right) ** 2).sum()
        total += (x ** 2).sum()
    return (lost / total) ** 0.5


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    if method != "randomized":
        torch.set_num_threads(int(threads))
        torch.manual_seed(0)
    a = np.fromfile(path, dtype=np.float32).reshape(ROWS, WIDTH)
    seconds, before = [], peak()
    for _ in range(int(repeats) + 1):
        start = time.perf_counter()
        left, right = decompose(a)
        seconds.append(time.perf_counter() - start)
    memory = peak() - before - (left.nbytes + right.nbytes) / 2 ** 20
    seconds = sorted(seconds[1:])
    error = relative_error(a, left, right.astype(np.float64))
    print(f"median {seconds[len(seconds) // 2]:.3f} s, best {seconds[0]:.3f} s, "
          f"error {error:.6e}, excess {error / float(optimum) - 1:.1e}, memory {memory:.0f} MB")


main()
