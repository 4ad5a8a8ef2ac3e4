"""Wrong answers to lesson 03's exercises; each docstring says what is wrong."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.attention_layer import (
    scaled_dot_product_attention,
    similarity_scores,
)

# ---- similarity_scores


def similarity_scores__dot_t(queries, keys):
    """`.T` turns all dimensions round, not only the last two."""
    return queries @ keys.T


def similarity_scores__transpose_1_2(queries, keys):
    """Dimensions 1 and 2 are counted from the front: right for one leading one only."""
    return torch.matmul(queries, keys.transpose(1, 2))


def similarity_scores__keys_times_queries(queries, keys):
    """The result is turned: row i belongs to key i, not to query i."""
    return keys @ queries.transpose(-2, -1)


def similarity_scores__scale_already(queries, keys):
    """Divides by the root of d_k, although no scale is asked for."""
    d_k = queries.shape[-1]
    return queries @ keys.transpose(-1, -2) / math.sqrt(d_k)


def similarity_scores__reshape_for_transpose(queries, keys):
    """`reshape` gives the keys the right shape, but mixes up their numbers."""
    *leading, n_keys, d_k = keys.shape
    return queries @ keys.reshape(*leading, d_k, n_keys)


def similarity_scores__tensordot(queries, keys):
    """Every query meets the keys of all sequences, not only those of its own."""
    return torch.tensordot(queries, keys, dims=([-1], [-1]))


def similarity_scores__squeezed(queries, keys):
    """`squeeze` at the end removes every dimension of size 1."""
    return queries.matmul(keys.mT).squeeze()


def similarity_scores__table_of_float32(queries, keys):
    """Fills a table of float32 on the CPU, whatever the inputs are."""
    scores = torch.zeros(*queries.shape[:-1], keys.shape[-2])
    for i in range(queries.shape[-2]):
        for j in range(keys.shape[-2]):
            scores[..., i, j] = (queries[..., i, :] * keys[..., j, :]).sum(dim=-1)
    return scores


def similarity_scores__keys_detached(queries, keys):
    """No gradient goes to the keys, since `.data` cuts them off."""
    return queries @ keys.data.transpose(-2, -1)


# ---- score_variance


def score_variance__divided_by_n(queries, keys):
    """Divides by the number of draws, not by one less."""
    return (queries * keys).sum(dim=-1).var(dim=-1, unbiased=False)


def score_variance__standard_deviation(queries, keys):
    """The standard deviation: the root of the variance."""
    scores = (queries * keys).sum(-1)
    return scores.std(-1)


def score_variance__every_query_with_every_key(queries, keys):
    """The variance over all pairs of a query and a key, not over query i with key i."""
    return similarity_scores(queries, keys).var(dim=(-2, -1))


def score_variance__all_sequences_together(queries, keys):
    """`var()` without a dimension: one number over all leading dimensions."""
    scores = (queries * keys).sum(dim=-1)
    return scores.var()


def score_variance__over_dimension_0(queries, keys):
    """Dimension 0 are the draws only where there are no leading dimensions."""
    dot_products = torch.sum(queries * keys, dim=-1)
    return torch.var(dot_products, dim=0)


def score_variance__sum_of_products_of_variances(queries, keys):
    """Right for independent numbers of mean zero: not the variance of the draws."""
    return (queries.var(dim=-2) * keys.var(dim=-2)).sum(dim=-1)


def score_variance__squares_minus_squared_mean(queries, keys):
    """Subtracts two large numbers: loses all digits where the mean is large."""
    scores = (queries * keys).sum(dim=-1)
    n = scores.shape[-1]
    return ((scores**2).mean(-1) - scores.mean(-1) ** 2) * n / (n - 1)


def score_variance__sum_forgotten(queries, keys):
    """The variance of all single products: they are not summed to dot products."""
    return torch.var(queries * keys)


def score_variance__var_over_d_k(queries, keys):
    """The products are not summed, and the variance is over d_k, not over the draws."""
    return (queries * keys).var(dim=-1)


def score_variance__table_turned_with_t(queries, keys):
    """All pairs instead of query i with key i, and `.T` turns all dimensions."""
    return (queries @ keys.T).var()


def score_variance__multiplied_in_place(queries, keys):
    """`*=` writes the products into the queries, an input."""
    queries *= keys
    return queries.sum(dim=-1).var(dim=-1)


def score_variance__no_grad(queries, keys):
    """Computed under `no_grad`: no gradient goes to queries and keys."""
    with torch.no_grad():
        return (queries * keys).sum(dim=-1).var(dim=-1)


def score_variance__squeezed(queries, keys):
    """`squeeze` removes leading dimensions of size 1."""
    scores = (queries.unsqueeze(-2) @ keys.unsqueeze(-1)).squeeze()
    return scores.var(dim=-1)


# ---- scaled_dot_product_attention


def scaled_dot_product_attention__root_of_d_v(queries, keys, values):
    """Divides by the root of d_v, the width of the values."""
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(values.shape[-1])
    weights = F.softmax(scores, dim=-1)
    return weights @ values, weights


def scaled_dot_product_attention__whole_root(queries, keys, values):
    """`int` cuts the root of d_k off to a whole number."""
    scale = int(queries.shape[-1] ** 0.5)
    weights = torch.softmax(similarity_scores(queries, keys) / scale, dim=-1)
    return weights @ values, weights


def scaled_dot_product_attention__len_of_the_first_query(queries, keys, values):
    """`len(queries[0])` is d_k only where there are no leading dimensions."""
    scores = similarity_scores(queries, keys) / len(queries[0]) ** 0.5
    weights = scores.softmax(-1)
    return weights.matmul(values), weights


def scaled_dot_product_attention__root_of_a_tensor(queries, keys, values):
    """The root of d_k is a tensor of float32: too few digits for float64."""
    d_k = torch.tensor(queries.shape[-1], dtype=torch.float32)
    weights = torch.softmax(similarity_scores(queries, keys) / torch.sqrt(d_k), dim=-1)
    return weights @ values, weights


def scaled_dot_product_attention__softmax_without_dim(queries, keys, values):
    """`F.softmax` without `dim` takes dimension 0 or 1, depending on how many."""
    weights = F.softmax(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5)
    return weights @ values, weights


def scaled_dot_product_attention__scale_after_softmax(queries, keys, values):
    """The weights are divided by the root of d_k, not the scores."""
    weights = torch.softmax(queries @ keys.transpose(-2, -1), dim=-1)
    weights = weights / queries.shape[-1] ** 0.5
    return weights @ values, weights


def scaled_dot_product_attention__over_the_queries(queries, keys, values):
    """The softmax runs over the queries: each column of the weights sums to 1."""
    scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-2)
    return weights @ values, weights


def scaled_dot_product_attention__weights_first(queries, keys, values):
    """Returns the weights first and the outputs second."""
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    output = weights @ values
    return weights, output


def scaled_dot_product_attention__only_outputs(queries, keys, values):
    """Returns the outputs only: the weights are not returned."""
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ values


def scaled_dot_product_attention__keys_summed(queries, keys, values):
    """The outputs are sums of the keys; the values are not used."""
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ keys, weights


def scaled_dot_product_attention__plain_exp(queries, keys, values):
    """`exp` overflows where scores are large, and gives NaN."""
    e = torch.exp(similarity_scores(queries, keys) / queries.shape[-1] ** 0.5)
    weights = e / e.sum(dim=-1, keepdim=True)
    return weights @ values, weights


def scaled_dot_product_attention__largest_of_all(queries, keys, values):
    """Subtracts the largest score of all queries: a row far below it becomes 0 / 0."""
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    e = torch.exp(scores - scores.max())
    weights = e / e.sum(dim=-1, keepdim=True)
    return weights @ values, weights


def scaled_dot_product_attention__weights_detached(queries, keys, values):
    """The weights are returned detached: no gradient flows through them."""
    scores = similarity_scores(queries, keys) / queries.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    return weights @ values, weights.detach()


def scaled_dot_product_attention__queries_divided_in_place(queries, keys, values):
    """`/=` divides the queries themselves, an input."""
    queries /= queries.shape[-1] ** 0.5
    weights = torch.softmax(queries @ keys.transpose(-2, -1), dim=-1)
    return weights @ values, weights


# ---- cross_attention


def cross_attention__w_k_for_the_values(queries, data, w_q, w_k, w_v):
    """The values are made with w_k; w_v is not used."""
    k = v = data @ w_k
    return scaled_dot_product_attention(queries @ w_q, k, v)


def cross_attention__values_not_projected(queries, data, w_q, w_k, w_v):
    """The data vectors themselves are the values: their projection is forgotten."""
    q, k = queries @ w_q, data @ w_k
    return scaled_dot_product_attention(q, k, data)


def cross_attention__keys_from_the_queries(queries, data, w_q, w_k, w_v):
    """The keys are made from the queries, not from the data."""
    q, k, v = queries @ w_q, queries @ w_k, data @ w_v
    return scaled_dot_product_attention(q, k, v)


def cross_attention__data_asks(queries, data, w_q, w_k, w_v):
    """Softmax over the queries: the data vectors share their weight out among them."""
    q, k, v = queries @ w_q, data @ w_k, data @ w_v
    _, weights = scaled_dot_product_attention(k, q, q)
    return weights.mT @ v, weights.mT


def cross_attention__matrices_as_in_linear(queries, data, w_q, w_k, w_v):
    """`F.linear` multiplies by the matrices transposed."""
    q, k, v = F.linear(queries, w_q), F.linear(data, w_k), F.linear(data, w_v)
    return scaled_dot_product_attention(q, k, v)


def cross_attention__matrix_first(queries, data, w_q, w_k, w_v):
    """`w @ x` treats vectors as columns; here they are rows."""
    return scaled_dot_product_attention(w_q @ queries, w_k @ data, w_v @ data)


def cross_attention__scale_before_the_projection(queries, data, w_q, w_k, w_v):
    """Divides by the root of d_query, the width before the projection, not of d_k."""
    scores = (queries @ w_q) @ (data @ w_k).transpose(-2, -1)
    weights = torch.softmax(scores / queries.shape[-1] ** 0.5, dim=-1)
    return weights @ (data @ w_v), weights


def cross_attention__weights_come_first(queries, data, w_q, w_k, w_v):
    """Returns the weights first and the outputs second."""
    q, k, v = queries @ w_q, data @ w_k, data @ w_v
    context, attention = scaled_dot_product_attention(q, k, v)
    return attention, context


def cross_attention__no_scale_and_no_weights(queries, data, w_q, w_k, w_v):
    """Two faults: the scores have no scale, and the weights are not returned."""
    scores = similarity_scores(queries @ w_q, data @ w_k)
    return torch.softmax(scores, dim=-1) @ (data @ w_v)


def cross_attention__residual_added(queries, data, w_q, w_k, w_v):
    """Adds the projected queries to the outputs, and fails where d_v is not d_k."""
    q = queries @ w_q
    outputs, weights = scaled_dot_product_attention(q, data @ w_k, data @ w_v)
    return outputs + q, weights


def cross_attention__one_query_squeezed(queries, data, w_q, w_k, w_v):
    """Where there is one query only, its dimension is removed from both results."""
    q, k, v = queries @ w_q, data @ w_k, data @ w_v
    outputs, weights = scaled_dot_product_attention(q, k, v)
    return outputs.squeeze(-2), weights.squeeze(-2)


def cross_attention__w_k_detached(queries, data, w_q, w_k, w_v):
    """No gradient goes to w_k: it could not learn."""
    keys = data @ w_k.detach()
    return scaled_dot_product_attention(queries @ w_q, keys, data @ w_v)
