"""Wrong answers to lesson 00's exercise, as learners write them."""

import torch


def softmax__sum_of_the_whole_tensor(scores):
    """`sum()` adds all rows, so only a single row gets weights that sum to 1."""
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum()


def softmax__sum_without_keepdim(scores):
    """The sums have no keepdim, so they stand along the wrong axis, or raise."""
    biggest, _ = scores.max(dim=-1, keepdim=True)
    e = (scores - biggest).exp()
    return e / e.sum(dim=-1)


def softmax__dim_1(scores):
    """The softmax is over dimension 1, which is the last one of matrices only."""
    return torch.softmax(scores, dim=1)


def softmax__no_maximum(scores):
    """No maximum is subtracted: exp of a large score is inf, and inf / inf is NaN."""
    exps = torch.exp(scores)
    return exps / torch.sum(exps, dim=-1, keepdim=True)


def softmax__global_maximum_and_sum_of_columns(scores):
    """One maximum for all rows, so some get 0 / 0; and the sums go down dimension 0."""
    e = torch.exp(scores - torch.max(scores))
    return e / torch.sum(e, dim=0, keepdim=True)


def softmax__mean_in_place_of_the_maximum(scores):
    """The mean is subtracted: exp can still be inf, and a score of -inf gives NaN."""
    centred = scores - scores.mean(dim=-1, keepdim=True)
    e = torch.exp(centred)
    return e / e.sum(dim=-1, keepdim=True)


def softmax__changes_the_scores(scores):
    """The maximum is subtracted in place, which changes the caller's scores."""
    scores -= scores.max(dim=-1, keepdim=True).values
    e = torch.exp(scores)
    return e / e.sum(dim=-1, keepdim=True)


def softmax__always_float32(scores):
    """The weights are float32, whatever dtype the scores have."""
    scores = scores.float()
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def softmax__sum_is_detached(scores):
    """The values are right, but no gradient flows through the sum in the divisor."""
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True).detach()
