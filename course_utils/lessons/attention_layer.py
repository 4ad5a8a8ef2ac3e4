"""Lesson 03: attention as a layer of its own: queries ask, keys are compared with them, values are delivered.

Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762) for queries, keys, values and the scale, Miller et al. 2016
(https://arxiv.org/abs/1606.03126) for keys and values apart.

Vectors are rows, so a projection is `data @ w`. All functions take any number of leading dimensions, also none, and
keep dtype and device of their inputs. Leading dimensions must be equal; nothing is broadcast.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def similarity_scores(
    queries: Float[Tensor, "... queries d_k"], keys: Float[Tensor, "... keys d_k"]
) -> Float[Tensor, "... queries keys"]:
    """The dot product of every query with every key: row i, column j holds queries_i · keys_j.

    No scale. Any number of leading dimensions, also none; both inputs have the same ones.
    Raises ValueError when queries and keys do not fit.
    """
    if queries.shape[:-2] != keys.shape[:-2] or queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"queries have shape {tuple(queries.shape)} and keys {tuple(keys.shape)}: "
            "all dimensions but the last but one must be equal"
        )
    return queries @ keys.transpose(-2, -1)


def scaled_dot_product_attention(
    queries: Float[Tensor, "... queries d_k"],
    keys: Float[Tensor, "... keys d_k"],
    values: Float[Tensor, "... keys d_v"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """softmax(Q Kᵀ / √d_k) V (Vaswani et al. 2017): returns the outputs and the weights.

    The weights of one query are the softmax, over the keys, of its dot products divided by √d_k. Its output is the
    sum of all values, each times its weight. Any number of leading dimensions, also none; all inputs have the same.
    Raises ValueError when the shapes do not fit.
    """
    if values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"keys have shape {tuple(keys.shape)} and values {tuple(values.shape)}: "
            "all dimensions but the last must be equal"
        )
    # The queries are divided before the product: so the scores stay small enough for float16.
    weights = torch.softmax(similarity_scores(queries / queries.shape[-1] ** 0.5, keys), dim=-1)
    return weights @ values, weights


def cross_attention(
    queries: Float[Tensor, "... queries d_query"],
    data: Float[Tensor, "... data d_data"],
    w_q: Float[Tensor, "d_query d_k"],
    w_k: Float[Tensor, "d_data d_k"],
    w_v: Float[Tensor, "d_data d_v"],
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries data"]]:
    """Attention of query vectors over data vectors, with learned projections: returns the outputs and the weights.

    The queries are `queries @ w_q`; the data vectors give the keys `data @ w_k` and the values `data @ w_v`.
    Queries and data may differ in number and in width. Any number of leading dimensions, also none; both have the
    same ones. Raises ValueError when the shapes do not fit.
    """
    for name, matrix, vectors in (("w_q", w_q, queries), ("w_k", w_k, data), ("w_v", w_v, data)):
        if matrix.shape[:-1] != vectors.shape[-1:]:
            raise ValueError(
                f"{name} has shape {tuple(matrix.shape)}, but must be a matrix of {vectors.shape[-1]} rows: "
                f"it meets vectors of shape {tuple(vectors.shape)}"
            )
    return scaled_dot_product_attention(queries @ w_q, data @ w_k, data @ w_v)


def score_variance(
    queries: Float[Tensor, "... draws d_k"], keys: Float[Tensor, "... draws d_k"]
) -> Float[Tensor, "..."]:
    """The variance of queries_i · keys_i over the draws i: query i meets key i only.

    Squared distances from the mean, summed and divided by (draws - 1), as `torch.var` does. At least two draws; any
    number of leading dimensions, also none. Raises ValueError when queries and keys have different shapes.
    """
    if queries.shape != keys.shape:
        raise ValueError(f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} must have the same shape")
    return (queries * keys).sum(dim=-1).var(dim=-1)
