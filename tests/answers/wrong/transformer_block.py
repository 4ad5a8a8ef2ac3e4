"""Wrong answers to lesson 08's exercises; each docstring says what is wrong."""

import torch
import torch.nn.functional as F

# ---- layer_norm


def layer_norm__unbiased(x, gain, bias, eps=1e-5):
    """`torch.var` divides by d_model - 1."""
    variance = torch.var(x, dim=-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__std_plus_eps(x, gain, bias, eps=1e-5):
    """`x.std` divides by d_model - 1, and eps stands outside the root."""
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return gain * (x - mean) / (std + eps) + bias


def layer_norm__eps_outside(x, gain, bias, eps=1e-5):
    """eps stands outside the root."""
    mean, std = x.mean(-1, keepdim=True), x.std(-1, correction=0, keepdim=True)
    return gain * (x - mean) / (std + eps) + bias


def layer_norm__over_tokens(x, gain, bias, eps=1e-5):
    """Mean and variance over the tokens, not over the numbers of a vector."""
    dim = -2 if x.dim() > 1 else -1
    variance, mean = torch.var_mean(x, dim=dim, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__over_everything(x, gain, bias, eps=1e-5):
    """One mean and one variance for all vectors."""
    variance, mean = torch.var_mean(x, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__over_tokens_and_numbers(x, gain, bias, eps=1e-5):
    """Mean and variance of a whole sequence, not of each vector."""
    dims = (-1, -2) if x.dim() > 1 else (-1,)
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__mean_of_squares(x, gain, bias, eps=1e-5):
    """Mean of the squares minus square of the mean: nothing is left of large numbers."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean**2
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__mean_of_squares_clamped(x, gain, bias, eps=1e-5):
    """As before, with negative variances made 0."""
    mean = x.mean(-1, keepdim=True)
    variance = ((x * x).mean(-1, keepdim=True) - mean**2).clamp(min=0)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__gain_forgotten(x, gain, bias, eps=1e-5):
    """The gain is not used."""
    return F.layer_norm(x, gain.shape, None, bias, eps)


def layer_norm__bias_forgotten(x, gain, bias, eps=1e-5):
    """The bias is not used."""
    return F.layer_norm(x, gain.shape, gain, None, eps)


def layer_norm__always_1e_5(x, gain, bias, eps=1e-5):
    """PyTorch's default eps instead of the one that is given."""
    return F.layer_norm(x, gain.shape, gain, bias)


def layer_norm__rms(x, gain, bias, eps=1e-5):
    """RMSNorm: the mean is never subtracted."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain + bias


def layer_norm__gain_plus_bias(x, gain, bias, eps=1e-5):
    """Times the sum of gain and bias."""
    return F.layer_norm(x, gain.shape, None, None, eps) * (gain + bias)


def layer_norm__no_keepdim(x, gain, bias, eps=1e-5):
    """Without `keepdim` the means of the vectors are subtracted along the wrong axis, or do not fit."""
    centred = x - x.mean(dim=-1)
    return centred / torch.sqrt(centred.square().mean(dim=-1) + eps) * gain + bias


def layer_norm__unit_length(x, gain, bias, eps=1e-5):
    """Vectors of length 1: divided by the root of the sum, not of the mean."""
    centred = x - x.mean(-1, keepdim=True)
    length = torch.sqrt(centred.square().sum(-1, keepdim=True) + eps)
    return centred / length * gain + bias


def layer_norm__statistics_detached(x, gain, bias, eps=1e-5):
    """Mean and variance are constants for the gradient."""
    variance, mean = torch.var_mean(x.detach(), -1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__dim_1(x, gain, bias, eps=1e-5):
    """Dimension 1 is the last one only where there is one leading dimension."""
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def layer_norm__in_place(x, gain, bias, eps=1e-5):
    """Writes into x."""
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    x -= mean
    return x / torch.sqrt(variance + eps) * gain + bias


def layer_norm__squeezed(x, gain, bias, eps=1e-5):
    """Dimensions of size 1 are lost."""
    return F.layer_norm(x, gain.shape, gain, bias, eps).squeeze()


# ---- mlp


def mlp__no_relu(x, w_up, b_up, w_down, b_down):
    """No ReLU: one linear layer in two steps."""
    return (x @ w_up + b_up) @ w_down + b_down


def mlp__relu_at_the_end(x, w_up, b_up, w_down, b_down):
    """The ReLU after the second layer."""
    return F.relu((x @ w_up + b_up) @ w_down + b_down)


def mlp__relu_twice(x, w_up, b_up, w_down, b_down):
    """A ReLU after each layer."""
    return F.relu(F.relu(x @ w_up + b_up) @ w_down + b_down)


def mlp__relu_of_the_input(x, w_up, b_up, w_down, b_down):
    """The ReLU before the first layer."""
    return (F.relu(x) @ w_up + b_up) @ w_down + b_down


def mlp__bias_after_relu(x, w_up, b_up, w_down, b_down):
    """The first bias is added after the ReLU."""
    return (F.relu(x @ w_up) + b_up) @ w_down + b_down


def mlp__no_biases(x, w_up, b_up, w_down, b_down):
    """Both biases are forgotten."""
    return F.relu(x @ w_up) @ w_down


def mlp__second_bias_forgotten(x, w_up, b_up, w_down, b_down):
    """The second bias is forgotten."""
    return F.relu(F.linear(x, w_up.T, b_up)) @ w_down


def mlp__first_bias_forgotten(x, w_up, b_up, w_down, b_down):
    """The first bias is forgotten."""
    return F.linear(F.relu(x @ w_up), w_down.T, b_down)


def mlp__gelu(x, w_up, b_up, w_down, b_down):
    """GELU, not ReLU."""
    return F.gelu(x @ w_up + b_up) @ w_down + b_down


def mlp__absolute_value(x, w_up, b_up, w_down, b_down):
    """The absolute value: negative numbers become positive, not 0."""
    return (x @ w_up + b_up).abs() @ w_down + b_down


def mlp__leaky(x, w_up, b_up, w_down, b_down):
    """A leaky ReLU: a hundredth of the negative numbers is left."""
    return F.leaky_relu(x @ w_up + b_up) @ w_down + b_down


def mlp__residual_too(x, w_up, b_up, w_down, b_down):
    """Adds the input: that is the block's business."""
    return x + F.relu(x @ w_up + b_up) @ w_down + b_down


def mlp__transposed(x, w_up, b_up, w_down, b_down):
    """Over the wrong axis: the tokens are mixed."""
    return (F.relu(x.mT @ w_up + b_up) @ w_down + b_down).mT


def mlp__linear_not_transposed(x, w_up, b_up, w_down, b_down):
    """`F.linear` transposes its matrix: right shapes only where the matrices are square, and wrong numbers."""
    return F.linear(F.relu(F.linear(x, w_up, b_up)), w_down, b_down)


def mlp__mm(x, w_up, b_up, w_down, b_down):
    """`torch.mm` takes matrices only: no batch, and no single vector."""
    return torch.mm(F.relu(torch.mm(x, w_up) + b_up), w_down) + b_down


# ---- post_norm_block


def post_norm_block__pre_norm(x, attention, mlp, norm_1, norm_2):
    """Pre-norm: the norms before the parts."""
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def post_norm_block__residual_of_the_normed(x, attention, mlp, norm_1, norm_2):
    """Norms first, and the normed vectors are added."""
    x = norm_1(x)
    x = x + attention(x)
    x = norm_2(x)
    return x + mlp(x)


def post_norm_block__no_residuals(x, attention, mlp, norm_1, norm_2):
    """No residual connections."""
    return norm_2(mlp(norm_1(attention(x))))


def post_norm_block__second_residual_forgotten(x, attention, mlp, norm_1, norm_2):
    """Nothing is added to the MLP's output."""
    y = norm_1(x + attention(x))
    return norm_2(mlp(y))


def post_norm_block__first_residual_forgotten(x, attention, mlp, norm_1, norm_2):
    """Nothing is added to the attention's output."""
    y = norm_1(attention(x))
    return norm_2(y + mlp(y))


def post_norm_block__old_residual(x, attention, mlp, norm_1, norm_2):
    """The block's input is added to the MLP's output, not the MLP's input."""
    y = norm_1(x + attention(x))
    return norm_2(x + mlp(y))


def post_norm_block__one_norm(x, attention, mlp, norm_1, norm_2):
    """`norm_1` is used twice."""
    y = norm_1(x + attention(x))
    return norm_1(y + mlp(y))


def post_norm_block__norms_swapped(x, attention, mlp, norm_1, norm_2):
    """The two norms have changed places."""
    y = norm_2(x + attention(x))
    return norm_1(y + mlp(y))


def post_norm_block__norm_of_the_branch(x, attention, mlp, norm_1, norm_2):
    """The output of each part is normed, not the sum."""
    x = x + norm_1(attention(x))
    return x + norm_2(mlp(x))


def post_norm_block__norm_of_the_mlp(x, attention, mlp, norm_1, norm_2):
    """In the second half the MLP's output is normed, not the sum."""
    y = norm_1(x + attention(x))
    return y + norm_2(mlp(y))


def post_norm_block__norm_of_the_attention(x, attention, mlp, norm_1, norm_2):
    """In the first half the attention's output is normed, not the sum."""
    y = x + norm_1(attention(x))
    return norm_2(y + mlp(y))


def post_norm_block__norm_of_the_residual(x, attention, mlp, norm_1, norm_2):
    """The second norm is that of what is added to the MLP's output."""
    y = norm_1(x + attention(x))
    return norm_2(y) + mlp(y)


def post_norm_block__mlp_of_the_sum(x, attention, mlp, norm_1, norm_2):
    """The MLP reads the sum before it is normed."""
    y = x + attention(x)
    return norm_2(norm_1(y) + mlp(y))


def post_norm_block__last_norm_forgotten(x, attention, mlp, norm_1, norm_2):
    """No norm after the MLP."""
    y = norm_1(x + attention(x))
    return y + mlp(y)


def post_norm_block__mlp_first(x, attention, mlp, norm_1, norm_2):
    """The MLP before the attention."""
    y = norm_2(x + mlp(x))
    return norm_1(y + attention(y))


def post_norm_block__both_norms_at_the_end(x, attention, mlp, norm_1, norm_2):
    """Both norms after the MLP."""
    y = x + attention(x)
    return norm_2(norm_1(y + mlp(y)))


def post_norm_block__residual_detached(x, attention, mlp, norm_1, norm_2):
    """No gradient goes through the residual connections."""
    y = norm_1(x.detach() + attention(x))
    return norm_2(y.detach() + mlp(y))


def post_norm_block__attention_twice(x, attention, mlp, norm_1, norm_2):
    """The attention is computed twice: right, but nearly twice the work."""
    y = norm_1(x + attention(x))
    return norm_2(norm_1(x + attention(x)) + mlp(y))


def post_norm_block__in_place(x, attention, mlp, norm_1, norm_2):
    """Adds into x, which the caller still needs."""
    x += attention(x)
    x = norm_1(x)
    return norm_2(x + mlp(x))


# ---- count_parameters


def count_parameters__no_biases(d_model, d_hidden):
    """No biases of the linear layers."""
    return 4 * d_model**2 + 2 * d_model * d_hidden + 4 * d_model


def count_parameters__no_norms(d_model, d_hidden):
    """The norms are forgotten."""
    return 4 * (d_model + 1) * d_model + 2 * d_model * d_hidden + d_hidden + d_model


def count_parameters__one_norm(d_model, d_hidden):
    """One norm only."""
    attention = 4 * (d_model + 1) * d_model
    return attention + 2 * d_model * d_hidden + d_hidden + d_model + 2 * d_model


def count_parameters__matrices_only(d_model, d_hidden):
    """Only the six matrices."""
    return 4 * d_model**2 + 2 * d_model * d_hidden


def count_parameters__no_biases_anywhere(d_model, d_hidden):
    """Six matrices, and the norms' gains."""
    return 4 * d_model**2 + 2 * d_model * d_hidden + 2 * d_model


def count_parameters__three_projections(d_model, d_hidden):
    """The output projection of the attention is forgotten."""
    attention = 3 * (d_model + 1) * d_model
    return attention + 2 * d_model * d_hidden + d_hidden + d_model + 4 * d_model


def count_parameters__eight_heads(d_model, d_hidden):
    """Every one of 8 heads has projections of the full width."""
    attention = 8 * 3 * (d_model + 1) * d_model + (d_model + 1) * d_model
    return attention + 2 * d_model * d_hidden + d_hidden + d_model + 4 * d_model


def count_parameters__four_times(d_model, d_hidden):
    """d_hidden is taken to be 4 times d_model."""
    d_hidden = 4 * d_model
    return 4 * d_model**2 + 2 * d_model * d_hidden + 9 * d_model + d_hidden


def count_parameters__float(d_model, d_hidden):
    """A float."""
    return 4.0 * d_model**2 + 2 * d_model * d_hidden + 9 * d_model + d_hidden


def count_parameters__tensor(d_model, d_hidden):
    """A tensor, not a whole number of Python."""
    return torch.tensor(4 * d_model**2 + 2 * d_model * d_hidden + 9 * d_model + d_hidden)


def count_parameters__biases_of_the_inputs(d_model, d_hidden):
    """Each bias of the MLP as long as its layer's input: by luck the same sum, plus one."""
    return 4 * d_model**2 + 2 * d_model * d_hidden + 9 * d_model + d_hidden + 1


def count_parameters__both_biases_hidden(d_model, d_hidden):
    """Both biases of the MLP have d_hidden numbers."""
    return 4 * d_model**2 + 2 * d_model * d_hidden + 8 * d_model + 2 * d_hidden
