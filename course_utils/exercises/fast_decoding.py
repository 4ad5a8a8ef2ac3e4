"""Lesson 13's exercises: a cache that grows, attention that uses it, its size, and attention as a running sum."""

import torch

from course_utils.exercises import Exercise, case, expect, normal, note
from course_utils.lessons import fast_decoding
from course_utils.lessons.fast_decoding import feature_map, share_heads
from course_utils.lessons.multi_head import attend

# ---- append_to_cache -----------------------------------------------------------------------------------------

ex = Exercise(
    fast_decoding.append_to_cache,
    points=1,
    minutes=5,
    hints=(
        "Two steps: put the new rows behind the old ones, then, if there is a window, keep the last rows.",
        "The tokens are the dimension before the last one: `dim=-2`, however many dimensions stand before it.",
        "`torch.cat([cached, new], dim=-2)` makes a new tensor. `rows[..., -window:, :]` are the last `window` rows, "
        "or all of them.",
    ),
)


def rows(*leading, cached=5, new=4, d=7, **window):
    return case(normal(*leading, cached, d), normal(*leading, new, d, seed=1), **window)


def windowed(*leading, cached=5, new=4, d=7):
    return rows(*leading, cached=cached, new=new, d=d, window=6)


OLD, NEW = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0]])
ex.cases(
    "two tokens and a third one",
    case(OLD, NEW).gives(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
    case(OLD, NEW, window=2).gives(torch.tensor([[3.0, 4.0], [5.0, 6.0]])),
    case(OLD, NEW, window=4).gives(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).noted("there are fewer than 4"),
)
ex.cases(
    "as many new tokens as old ones, and more",
    rows(3, cached=4, new=4),
    rows(3, cached=1, new=6),
    case(normal(4, 4, 4), normal(4, 4, 4, seed=1)),
)
ex.cases("the first tokens: the cache is empty", rows(3, cached=0), rows(cached=0, new=1), rows(3, cached=0, window=2))
ex.cases(
    "a window, and several tokens at once",
    rows(3, window=6),
    rows(3, new=1, window=5),
    rows(3, new=6, window=4),
    rows(3, window=1),
    rows(3, new=1, window=1),
    rows(3, window=9),
    rows(3, window=50),
)
ex.cases("fewer tokens than the window", *(rows(window=n) for n in (10, 13, 17)), rows(3, cached=1, new=1, window=3))
ex.promises(rows, "leading", "sizes", "dtypes", "gradients", "device")
ex.promises(windowed, "leading", "gradients", "device")


@ex.check("two texts go on from the same cache")
def _(answer, rng):
    cached, one, other = normal(3, 4, 5), normal(3, 2, 5, seed=1), normal(3, 2, 5, seed=2)
    first = answer(cached, one)
    answer(cached, other)
    expect(first, torch.cat([normal(3, 4, 5), one], dim=-2), "the first text's cache, after the second text went on")


@ex.check("the result is a new tensor, also for an empty cache")
def _(answer, rng):
    for n_cached, n_new, window in ((0, 4, None), (0, 4, 5), (3, 2, 2), (3, 2, 9)):
        inputs = normal(3, n_cached, 5), normal(3, n_new, 5, seed=1)
        result = answer(*inputs, window)
        memory = result.untyped_storage().data_ptr()
        shared = any(x.untyped_storage().data_ptr() == memory for x in inputs)
        note("shares memory", shared)
        called = f"{n_cached} cached tokens, {n_new} new ones, window={window}"
        expect(shared, False, f"{called}: is the result one of the inputs, or a part of it?")


CAT, LAST = "torch.cat([cached, new], dim=-2)", "rows[..., -window:, :]"
ex.mistake(
    "the new tokens stand in front",
    {"[cached, new]": "[new, cached]"},
    hint="The oldest token comes first. The new rows go to the end.",
)
ex.mistake(
    "the window keeps the first tokens",
    {LAST: "rows[..., :window, :]"},
    hint="When the window is full, the *oldest* tokens leave: keep the last rows, `rows[..., -window:, :]`.",
)
ex.mistake(
    "the window is one token too short",
    {LAST: "rows[..., max(0, rows.shape[-2] - window + 1) :, :]"},
    hint="Of all tokens, old and new, the last `window` stay: not one fewer.",
)
ex.mistake(
    "the window is one token too long",
    {LAST: "rows[..., -window - 1 :, :]"},
    hint="Of all tokens, old and new, the last `window` stay: not one more.",
)
ex.mistake(
    "only the old tokens are cut",
    {CAT: "torch.cat([cached if window is None else cached[..., -window:, :], new], dim=-2)", LAST: "rows"},
    hint="The window is for old and new tokens together. Put them side by side first, then cut.",
)
ex.mistake(
    "room is made for one new token only",
    {
        CAT: "torch.cat([cached if window is None else cached[..., max(0, cached.shape[-2] + 1 - window) :, :], new], "
        "dim=-2)",
        LAST: "rows",
    },
    hint="That is right for one new token. When several come at once, as many old ones must leave: put all side by "
    "side first, then cut.",
)
ex.mistake(
    "the slice starts at a negative number",
    {LAST: "rows[..., rows.shape[-2] - window :, :]"},
    hint="Where there are fewer tokens than the window, `tokens - window` is negative, and a negative start counts "
    "from the end. Start at 0 then, or take `rows[..., -window:, :]`.",
)
ex.mistake(
    "the old tokens are cut by a start that is not negative",
    {
        CAT: "torch.cat([cached if window is None else cached[..., -(window - new.shape[-2]) :, :], new], dim=-2)",
        LAST: "rows",
    },
    hint="Where as many tokens are new as the window has, `-0:` keeps *all* old ones, and where more are new, the "
    "start is positive. Put all side by side first, then cut.",
)
ex.mistake(
    "with an empty cache the new tokens themselves are returned",
    lambda cached, new, window=None: (
        (new if window is None else new[..., -window:, :])
        if cached.shape[-2] == 0
        else fast_decoding.append_to_cache(cached, new, window)
    ),
    hint="The result must be a new tensor, also here. `torch.cat` makes one, and an empty cache needs no `if`.",
)
ex.mistake(
    "where all old tokens leave, the new tokens themselves are returned",
    lambda cached, new, window=None: (
        new[..., -window:, :]
        if window is not None and new.shape[-2] >= window
        else fast_decoding.append_to_cache(cached, new, window)
    ),
    hint="A slice shares the memory of `new`. Put all side by side first (`torch.cat` makes a new tensor), then cut.",
)
ex.mistake(
    "of the new tokens, only the last one comes in",
    {"[cached, new]": "[cached, new[..., -1:, :]]"},
    hint="A prompt brings many new tokens at once, and all of them are needed later.",
)
ex.mistake(
    "the window is ignored",
    {"return rows if window is None else " + LAST: "return rows"},
    hint="With `window`, only the last `window` rows are returned.",
)
ex.mistake(
    "columns are cut instead of rows",
    {LAST: "rows[..., -window:]"},
    hint="The last dimension are the numbers of one vector. The tokens are the one before: `rows[..., -window:, :]`.",
)
ex.mistake(
    "the new rows are added to the old ones",
    {CAT: "torch.cat([cached[..., :-1, :], cached[..., -1:, :] + new], dim=-2) if cached.shape[-2] else new"},
    hint="Nothing is summed in this cache: each token keeps a row of its own.",
)
ex.mistake(
    "the cache grows along the wrong dimension",
    lambda cached, new, window=None: torch.cat([cached, new], dim=-1 if cached.shape == new.shape else -2)[
        ..., -(window or 10**9) :, :
    ],
    hint="The last dimension are the numbers of one vector, and no vector gets longer. The tokens are `dim=-2`.",
)

# ---- decode_with_cache ---------------------------------------------------------------------------------------

ex = Exercise(
    fast_decoding.decode_with_cache,
    points=4,
    minutes=20,
    returns=("outputs", "keys of all tokens", "values of all tokens"),
    hints=(
        "Four steps: find the positions of the new tokens, turn the new queries and keys, append to both caches (your "
        "`append_to_cache`), and let `attend` do the rest.",
        "If 5 tokens are cached and 3 are new, the new ones have the positions 5, 6 and 7: "
        "`torch.arange(5, 8, device=keys.device)`. The cached keys are turned already.",
        "`attend(turned_queries, all_keys, all_values, is_causal=True)` gives the outputs: the causal mask is aligned "
        "to the end, so the last query sees all keys. Return the outputs, all keys (turned) and all values.",
    ),
)


def chunk(*leading, cached=5, new=4, pairs=6, d_v=7):
    d_k = 2 * pairs
    queries, keys = normal(*leading, new, d_k), normal(*leading, new, d_k, seed=1)
    old = normal(*leading, cached, d_k, seed=3), normal(*leading, cached, d_v, seed=4)
    return case(queries, keys, normal(*leading, new, d_v, seed=2), *old, attend=attend)


def twice_the_values(queries, keys, values, mask=None, is_causal=False):
    return 2 * attend(queries, keys, values, mask, is_causal)


ALONE = normal(1, 2), normal(1, 2, seed=1), torch.tensor([[4.0, 8.0]])
SECOND = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), torch.tensor([[4.0, 8.0]])
ex.cases(
    "a second token whose query is zero: it sees both tokens equally",
    case(*SECOND, torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 2.0]]), attend).gives(
        (
            torch.tensor([[3.0, 5.0]]),
            torch.tensor([[3.0, 0.0], [0.5403023, 0.8414710]]),
            torch.tensor([[2.0, 2.0], [4.0, 8.0]]),
        )
    ),
)
ex.cases(
    "the first token: an empty cache", case(*ALONE, torch.zeros(0, 2), torch.zeros(0, 2), attend), chunk(3, cached=0)
)
ex.cases("one token at a time, and one cached token", chunk(3, new=1), chunk(3, cached=1), chunk(cached=1, new=1))
ex.cases("many tokens are cached already", chunk(2, cached=300, new=1), chunk(cached=4099))
ex.promises(chunk, "leading", "sizes", "dtypes", "gradients", "device")
ex.cases("another `attend` is used", *(case(*chunk(*lead).args, twice_the_values) for lead in ((), (3,))))
few = *chunk(3, 6).args[:1], *chunk(3, 1).args[1:]
ex.cases("queries with six heads, keys and values with one", case(*few, share_heads))


@ex.check("in pieces of any size as in one call", "gradients")
def _(answer, rng):
    q, k, v, cached_k, cached_v = (x.double() for x in chunk(3, cached=0, new=8).args)
    wanted = fast_decoding.decode_with_cache(q, k, v, cached_k, cached_v, attend)
    for sizes in ([8], [5, 3], [1] * 8, [1, 6, 1]):
        cache, outputs = (cached_k, cached_v), []
        for piece in zip(*(x.split(sizes, dim=-2) for x in (q, k, v)), strict=True):
            output, *cache = answer(*piece, *cache, attend)
            outputs.append(output)
        got = torch.cat(outputs, dim=-2), *cache
        names = "the outputs", "the cached keys", "the cached values"
        for name, one, other in zip(names, got, wanted, strict=True):
            expect(one, other, f"{name} of 8 tokens in pieces of {sizes}")


softmax_attend = attend
POSITIONS = "torch.arange(n_cached, n_cached + n_new, device=keys.device)"
KEYS = "append_to_cache(cached_keys, apply_rotary(keys, positions))"
VALUES = "append_to_cache(cached_values, values)"
QUERIES = "queries = apply_rotary(queries, positions)"
OUTPUTS = "attend(queries, all_keys, all_values, is_causal=True)"
RETURN = "return outputs, all_keys, all_values"
ex.mistake(
    "positions are counted from 0 in each call",
    {POSITIONS: "torch.arange(n_new, device=keys.device)"},
    hint="The new tokens stand *behind* the cached ones. With 5 cached tokens the first new one has position 5. No "
    "error shows this: the model only sees other distances.",
)
ex.mistake(
    "the position is one too large",
    {POSITIONS: "torch.arange(n_cached + 1, n_cached + n_new + 1, device=keys.device)"},
    hint="Positions count from 0: 5 cached tokens have the positions 0 to 4, so the first new one has 5.",
)
ex.mistake(
    "the position is one too small",
    {POSITIONS: "torch.arange(n_cached - 1, n_cached + n_new - 1, device=keys.device)"},
    hint="The first new token would stand in the place of the last cached one. With 5 cached tokens it has position 5.",
)
ex.mistake(
    "all new tokens get the same position",
    {POSITIONS: "torch.full((n_new,), n_cached, device=keys.device)"},
    hint="When several tokens are new, each has a position of its own: behind 5 cached tokens, 5, 6, 7 and so on.",
)
ex.mistake(
    "the cached keys are turned again",
    {KEYS: "apply_rotary(append_to_cache(cached_keys, keys), torch.arange(n_cached + n_new, device=keys.device))"},
    hint="The cached keys were turned when they were new. Turn only the new ones, then append them.",
)
ex.mistake(
    "keys are kept without positions, and all are turned when they are read",
    {
        KEYS: "append_to_cache(cached_keys, keys)",
        OUTPUTS: "attend(queries, apply_rotary(all_keys, torch.arange(n_cached + n_new, device=keys.device)), "
        "all_values, is_causal=True)",
    },
    hint="This is the second way of the text. Here we take the first: turn the *new* keys only, keep the turned ones, "
    "and return them. The cached keys are turned already. (`attend_rotary` would turn all of them.)",
)
ex.mistake(
    "the cache gets keys that are not turned",
    {RETURN: "return outputs, append_to_cache(cached_keys, keys), all_values"},
    hint="The next call takes the cached keys as they are. So keep the turned ones, with which you have computed.",
)
ex.mistake(
    "the keys are not turned",
    {KEYS: "append_to_cache(cached_keys, keys)"},
    hint="Queries *and* keys have positions: `apply_rotary(keys, positions)`, before they are appended.",
)
ex.mistake(
    "the queries are not turned",
    {QUERIES: ""},
    hint="Queries *and* keys have positions: `apply_rotary(queries, positions)`.",
)
ex.mistake(
    "the queries' positions are counted from 0",
    {QUERIES: "queries = apply_rotary(queries, positions - n_cached)"},
    hint="A query has the same position as the key of its token.",
)
ex.mistake(
    "no position at all",
    {KEYS: "append_to_cache(cached_keys, keys)", QUERIES: ""},
    hint="New queries and keys come without positions. Turn them: `apply_rotary(…, positions)`.",
)
ex.mistake(
    "new tokens see the new tokens after them",
    {"is_causal=True": "is_causal=False"},
    hint="When several tokens come at once, the first of them must not see the others: `is_causal=True`.",
)


def aligned_to_the_top_left(queries, keys, values, cached_keys, cached_values, attend):
    mask = torch.ones(keys.shape[-2], keys.shape[-2] + cached_keys.shape[-2], dtype=torch.bool).tril()

    def wrong(queries, keys, values, is_causal):
        return attend(queries, keys, values, mask.to(keys.device))

    return fast_decoding.decode_with_cache(queries, keys, values, cached_keys, cached_values, wrong)


ex.mistake(
    "the causal mask is aligned to the first key",
    aligned_to_the_top_left,
    hint="A triangle from the top left lets the first new token see only the first *cached* one. The mask must be "
    "aligned to the end, as lesson 05's is. (`is_causal=True` of PyTorch's own function is not.)",
)
ex.mistake(
    "read first, appended afterwards",
    {OUTPUTS: "attend(queries, cached_keys, cached_values, is_causal=False)"},
    hint="A token must see itself too, and the new ones before it. Append first, then attend to all keys.",
)
ex.mistake(
    "the cache is not read",
    {OUTPUTS: "attend(queries, all_keys[..., n_cached:, :], all_values[..., n_cached:, :], is_causal=True)"},
    hint="The new tokens see only each other here. Attend to *all* keys and values.",
)
ex.mistake(
    "the old cache is returned",
    {RETURN: "return outputs, cached_keys, cached_values"},
    hint="Return the keys and values of *all* tokens: otherwise the next call does not know these.",
)
ex.mistake(
    "only the new keys and values are returned",
    {RETURN: "return outputs, all_keys[..., n_cached:, :], all_values[..., n_cached:, :]"},
    hint="What is returned replaces the cache, so the old tokens must be in it too.",
)
ex.mistake(
    "values are turned, too",
    {VALUES: "append_to_cache(cached_values, values if values.shape[-1] % 2 else apply_rotary(values, positions))"},
    hint="Positions decide who looks at whom. What is delivered, the values, has none.",
)


def with_another_attend(queries, keys, values, cached_keys, cached_values, attend):
    return fast_decoding.decode_with_cache(queries, keys, values, cached_keys, cached_values, softmax_attend)


ex.mistake(
    "the given `attend` is not used",
    with_another_attend,
    hint="Call the `attend` that was given: a layer with shared heads brings its own.",
)
ex.mistake(
    "the oldest token is left out",
    {OUTPUTS: "attend(queries, all_keys[..., 1:, :], all_values[..., 1:, :], is_causal=True)"},
    hint="Nothing leaves this cache: the oldest token is still seen. Attend to *all* keys.",
)

# ---- kv_cache_bytes ------------------------------------------------------------------------------------------

ex = Exercise(
    fast_decoding.kv_cache_bytes,
    points=1,
    minutes=5,
    hints=(
        "First the numbers that one token leaves in one layer. How many heads of keys are there? How long is a key?",
        "A key has `d_model // n_heads` numbers, and a value as many. There are `n_kv_heads` of each, in every layer.",
        "2 · n_layers · n_kv_heads · (d_model // n_heads) numbers per token, times the tokens, the texts and the bytes "
        "of a number.",
    ),
)

ex.cases(
    "one layer that you can follow",
    case(3, 1, 8, 4, 4, 2).gives(2 * 3 * 8 * 2).noted("3 tokens leave a key and a value of 8 numbers each"),
    case(3, 1, 8, 4, 1, 2).gives(2 * 3 * 2 * 2).noted("one head of keys and values, of 2 numbers"),
)
ex.cases(
    "sizes of real models",
    case(4096, 32, 4096, 32, 32, 2).gives(2_147_483_648).noted("Llama 2 7B"),
    case(4096, 80, 8192, 64, 8, 2).gives(1_342_177_280).noted("Llama 2 70B"),
    case(8192, 32, 4096, 32, 8, 2).gives(1_073_741_824).noted("Llama 3 8B"),
)
ex.cases(
    "other numbers, several texts, no token",
    case(5, 3, 24, 6, 2, 4, batch=7),
    case(7, 2, 10, 5, 1, 8, 3),
    case(1, 1, 1, 1, 1, 1),
    case(0, 3, 24, 6, 2, 4),
)
ex.cases("a whole number also where it is large", case(10**9 + 7, 99, 12_285, 91, 91, 1, batch=1001))

PER_TOKEN = "2 * n_layers * n_kv_heads * d_k"
ALL = "batch * n_tokens * numbers * bytes_per_number"
ex.mistake(
    "the values are forgotten",
    {PER_TOKEN: "n_layers * n_kv_heads * d_k"},
    hint="Kept are keys *and* values: twice as many numbers.",
)
ex.mistake(
    "the layers are forgotten",
    {PER_TOKEN: "2 * n_kv_heads * d_k"},
    hint="Each layer has keys and values of its own.",
)
ex.mistake(
    "the heads of queries are counted",
    {PER_TOKEN: "2 * n_layers * n_heads * d_k"},
    hint="Queries are not kept. What counts are the heads of keys and values, `n_kv_heads`, and each has as many "
    "numbers as a head of queries: `d_model // n_heads`.",
)
ex.mistake(
    "each head has d_model numbers",
    {"d_model // n_heads": "d_model"},
    hint="d_model is the width of all query heads together: one head has `d_model // n_heads` numbers.",
)
ex.mistake("the texts are forgotten", {ALL: ALL.removeprefix("batch * ")}, hint="There are `batch` texts.")
ex.mistake(
    "the tokens are forgotten",
    {ALL: ALL.replace("n_tokens * ", "")},
    hint="That is what *one* token leaves. There are `n_tokens` in each text.",
)
ex.mistake(
    "numbers instead of bytes",
    {ALL: ALL.removesuffix(" * bytes_per_number")},
    hint="A number takes `bytes_per_number` bytes: 4 in float32, 2 in float16.",
)
ex.mistake("bits instead of bytes", {ALL: ALL + " * 8"}, hint="`bytes_per_number` counts bytes already.")
ex.mistake(
    "a matrix of tokens times tokens",
    {ALL: ALL.replace("n_tokens", "n_tokens**2")},
    hint="No weights are kept, which would be tokens times tokens. A key and a value per token grow like the tokens.",
)
ex.mistake(
    "a division that rounds",
    {"return ": "return int(1.0 * (", ALL: ALL + "))"},
    hint="A float has only 16 digits. `//` and whole numbers are exact.",
)

# ---- linear_attention ----------------------------------------------------------------------------------------

ex = Exercise(
    fast_decoding.linear_attention,
    points=3,
    minutes=15,
    hints=(
        "There are several ways: a loop over tokens, running sums, or one matrix of products as in lesson 03. All give "
        "the same.",
        "With one matrix: the products of all mapped queries and keys, (tokens, tokens). What must happen to the "
        "products with later keys? No minus infinity is needed: there is no softmax.",
        "`products = (feature_map(queries) @ feature_map(keys).mT).tril()`. Then `products @ values`, divided by "
        "`products.sum(dim=-1, keepdim=True)`.",
    ),
)


def by_loop(call):
    """Each output from its definition."""
    q, k, v = call.args
    q, k = feature_map(q), feature_map(k)
    outputs = []
    for i in range(q.shape[-2]):
        products = (q[..., i : i + 1, :] * k[..., : i + 1, :]).sum(dim=-1, keepdim=True)
        outputs.append((products * v[..., : i + 1, :]).sum(dim=-2) / products.sum(dim=-2))
    return call.gives(torch.stack(outputs, dim=-2))


three = ex.inputs(tokens=5, d_k=6, d_v=7)
SMALL = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [8.0]])
ex.cases(
    "two tokens that you can follow",
    case(*SMALL)
    .gives(torch.tensor([[4.0], [7.0]]))
    .noted("mapped keys 1 and 3, mapped queries 2: the weights of the second token are 1/4 and 3/4"),
)
ex.cases("each output as a sum over earlier tokens", by_loop(three(2)), by_loop(three(tokens=9)))
ex.cases("one token gives its own value", case(*three(3, tokens=1).args).gives(three(3, tokens=1).args[2]))
ex.promises(three, "leading", "sizes", "dtypes", "gradients", "device")
q, k, v = three(3).args
ex.cases("negative and large numbers", by_loop(case(-3 * q.abs(), k - 4, v)), by_loop(case(10 * q, 10 * k, v)))


@ex.check("no output depends on a later token")
def _(answer, rng):
    q, k, v = three(2).args
    later = [x.clone() for x in (q, k, v)]
    for x in later:
        x[..., 3:, :] += 5
    expect(answer(*later)[..., :3, :], answer(q, k, v)[..., :3, :], "outputs 0 to 2, when tokens 3 and 4 change")


MAPPED = "feature_map(queries), feature_map(keys)"
MASKED = "(queries @ keys.transpose(-2, -1)).tril()"
SUM = "products.sum(dim=-1, keepdim=True)"
ex.mistake(
    "the future is included",
    {MASKED: "queries @ keys.transpose(-2, -1)"},
    hint="The products with *later* keys must be zero: `.tril()` keeps the lower triangle.",
)
ex.mistake(
    "the denominator counts the future",
    {SUM: "(queries @ keys.transpose(-2, -1)).sum(dim=-1, keepdim=True)"},
    hint="The weights of one query must sum to 1: divide by the sum over the keys that it sees.",
)
ex.mistake(
    "the denominator is forgotten",
    {f" / {SUM}": ""},
    hint="Without a division the outputs grow with every token. Divide by the sum of the products: then the weights "
    "sum to 1.",
)
ex.mistake(
    "a small number is added to the denominator",
    {SUM: f"({SUM} + 1e-6)"},
    hint="Nothing is added: the sum is positive, since a token sees itself. A small number changes the weights where "
    "the products are small.",
)
ex.mistake(
    "the mean over the keys",
    {SUM: "torch.arange(1, products.shape[-1] + 1, device=values.device).to(values).unsqueeze(-1)"},
    hint="Divide by the sum of the products, not by the number of keys.",
)
ex.mistake(
    "the feature map is forgotten for the queries",
    {MAPPED: "queries, feature_map(keys)"},
    hint="The keys are mapped here, the queries are not: then products can be negative.",
)
ex.mistake(
    "the feature map is forgotten for the keys",
    {MAPPED: "feature_map(queries), keys"},
    hint="The queries are mapped here, the keys are not: then products can be negative.",
)
ex.mistake(
    "no feature map",
    {MAPPED: "queries, keys"},
    hint="Plain dot products can be negative, and their sum can be zero. `feature_map` makes them positive.",
)
ex.mistake(
    "the products are mapped, and not the queries and keys",
    {MAPPED: "queries, keys", MASKED: "feature_map(queries @ keys.transpose(-2, -1)).tril()"},
    hint="Map the queries and the keys first, each for itself, then take the products.",
)
ex.mistake(
    "a token does not see itself",
    {".tril()": ".tril(-1)"},
    hint="Row i are the keys 0 to i, *including* i: `.tril()` without a number. Else the first token sees nothing, "
    "and its output is 0/0.",
)
ex.mistake(
    "later keys get minus infinity",
    {
        MASKED: "(queries @ keys.transpose(-2, -1)).masked_fill("
        "torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=keys.device).triu(1), -torch.inf)"
    },
    hint="Minus infinity is for scores before a softmax. Here the products *are* the weights: those with later keys "
    "must be 0.",
)
ex.mistake(
    "the 1 of the feature map is forgotten",
    {MAPPED: "F.elu(queries), F.elu(keys)"},
    hint="`F.elu` goes down to -1. With 1 added it is never negative: use `feature_map`.",
)
ex.mistake(
    "ReLU instead of the feature map",
    {MAPPED: "torch.relu(queries) + 1e-6, torch.relu(keys) + 1e-6"},
    hint="The map of this lesson is elu(x) + 1: use `feature_map`. It has a slope below zero, too.",
)
ex.mistake(
    "a softmax of the products",
    {
        MASKED: "(queries @ keys.transpose(-2, -1)).masked_fill("
        "torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=keys.device).triu(1), -torch.inf"
        ").softmax(dim=-1)"
    },
    hint="There is no softmax here. The products are divided by their sum, and that is all.",
)
ex.mistake(
    "lesson 05's attention",
    lambda queries, keys, values: attend(queries, keys, values, is_causal=True),
    hint="That is softmax attention. Here the weights are products of mapped queries and keys, divided by their sum.",
)
ex.mistake(
    "scaled by √d_k before the map",
    {MAPPED: "feature_map(queries / queries.shape[-1] ** 0.5), feature_map(keys)"},
    hint="There is no scale. Behind the map it would cancel out, since all products are divided by their sum.",
)
ex.mistake(
    "the sum over the queries",
    {SUM: "products.sum(dim=-2, keepdim=True).transpose(-2, -1)"},
    hint="The weights of one *query* sum to 1: sum over the keys, `dim=-1`.",
)
ex.mistake(
    "the values are mapped, too",
    {"products @ values": "products @ feature_map(values)"},
    hint="Only queries and keys are mapped. The values are what is delivered.",
)
ex.mistake(
    "the past instead of the future is hidden",
    {".tril()": ".triu()"},
    hint="Row i are the keys that query i sees: 0 to i. That is the *lower* triangle.",
)

# ---- linear_attention_step -----------------------------------------------------------------------------------

ex = Exercise(
    fast_decoding.linear_attention_step,
    points=2,
    minutes=10,
    returns=("output", "state", "total"),
    hints=(
        "Three steps: map query and key, add the token to `state` and to `total`, then read the output.",
        "The state gets an outer product: every number of the key times every number of the value, (d_k, d_v). "
        "`key.unsqueeze(-1) * value.unsqueeze(-2)` makes it.",
        "`output = (query.unsqueeze(-2) @ state).squeeze(-2)`, divided by `(query * total).sum(dim=-1, keepdim=True)`, "
        "with the *new* state and total.",
    ),
)


def token(*leading, d_k=6, d_v=7):
    query, key, value = normal(*leading, d_k), normal(*leading, d_k, seed=1), normal(*leading, d_v, seed=2)
    old = feature_map(normal(*leading, 4, d_k, seed=3))
    state = old.transpose(-2, -1) @ normal(*leading, 4, d_v, seed=4)
    return case(query, key, value, state, old.sum(dim=-2))


zero = torch.zeros(1, 1), torch.zeros(1)
ex.cases(
    "the two tokens of before, one after the other",
    case(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([4.0]), *zero).gives(
        (torch.tensor([4.0]), torch.tensor([[4.0]]), torch.tensor([1.0]))
    ),
    case(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([8.0]), torch.tensor([[4.0]]), torch.tensor([1.0]))
    .gives((torch.tensor([7.0]), torch.tensor([[28.0]]), torch.tensor([4.0])))
    .noted("the mapped key is 3"),
)
ex.cases(
    "a first token with two numbers",
    case(torch.zeros(2), torch.tensor([0.0, 1.0]), torch.tensor([3.0, 5.0]), torch.zeros(2, 2), torch.zeros(2))
    .gives((torch.tensor([3.0, 5.0]), torch.tensor([[3.0, 5.0], [6.0, 10.0]]), torch.tensor([1.0, 2.0])))
    .noted("the mapped key is (1, 2): one row of the state for each of its numbers"),
    token(3, d_k=4, d_v=4),
)
ex.promises(token, "leading", "sizes", "dtypes", "gradients", "device")


@ex.check("step after step, the rows of `linear_attention`", "gradients")
def _(answer, rng):
    q, k, v = normal(3, 9, 5).double(), normal(3, 9, 5, seed=1).double(), normal(3, 9, 4, seed=2).double()
    state, total = torch.zeros(3, 5, 4).double(), torch.zeros(3, 5).double()
    outputs = []
    for i in range(9):
        output, state, total = answer(q[:, i], k[:, i], v[:, i], state, total)
        outputs.append(output)
    expect(torch.stack(outputs, dim=1), fast_decoding.linear_attention(q, k, v), "9 steps from an empty state")


@ex.check("two texts go on from the same state")
def _(answer, rng):
    query, key, value, state, total = token(3).args
    first = answer(query, key, value, state, total)
    kept = [x.clone() for x in first]
    answer(query, key + 1, value + 1, state, total)
    for name, one, other in zip(("output", "state", "total"), first, kept, strict=True):
        expect(one, other, f"the first text's {name}, after the second text went on")


STATE = "state + key.unsqueeze(-1) @ value.unsqueeze(-2)"
DIVIDED = "weighted / (query * total).sum(dim=-1, keepdim=True)"
ex.mistake(
    "read before the token is added",
    lambda query, key, value, state, total: (
        (feature_map(query).unsqueeze(-2) @ state).squeeze(-2)
        / (feature_map(query) * total).sum(dim=-1, keepdim=True).clamp(min=1e-6),
        state + feature_map(key).unsqueeze(-1) * value.unsqueeze(-2),
        total + feature_map(key),
    ),
    hint="A token sees itself: first add it to state and total, then read.",
)
ex.mistake(
    "`total` is added after reading",
    lambda query, key, value, state, total: (
        (feature_map(query).unsqueeze(-2) @ (state + feature_map(key).unsqueeze(-1) * value.unsqueeze(-2))).squeeze(-2)
        / (feature_map(query) * total).sum(dim=-1, keepdim=True),
        state + feature_map(key).unsqueeze(-1) * value.unsqueeze(-2),
        total + feature_map(key),
    ),
    hint="A token sees itself: add its mapped key to `total` *before* you divide.",
)
ex.mistake(
    "the outer product is the wrong way round",
    {STATE: "state + value.unsqueeze(-1) @ key.unsqueeze(-2)"},
    hint="The state is (d_k, d_v): one row for each number of the key, `key.unsqueeze(-1) * value.unsqueeze(-2)`.",
)
ex.mistake(
    "a small number is added to the denominator",
    {DIVIDED: "weighted / ((query * total).sum(dim=-1, keepdim=True) + 1e-6)"},
    hint="Nothing is added: the sum is positive, since the token itself is in `total`.",
)
ex.mistake(
    "the denominator is forgotten",
    {DIVIDED: "weighted"},
    hint="Divide by the dot product of the mapped query with `total`: then the weights sum to 1.",
)
ex.mistake(
    "divided by the sum of `total`",
    {DIVIDED: "weighted / total.sum(dim=-1, keepdim=True)"},
    hint="The sum of the weights is the dot product of the mapped *query* with `total`.",
)
ex.mistake(
    "divided by the weight of the new token",
    {DIVIDED: "weighted / (query * key).sum(dim=-1, keepdim=True)"},
    hint="Divide by the sum over *all* tokens so far: the mapped query times `total`.",
)
ex.mistake(
    "`total` gets the key without the map",
    {"query, key = feature_map(query), feature_map(key)": "raw, query, key = key, feature_map(query), feature_map(key)"}
    | {"total + key": "total + raw"},
    hint="`total` is the sum of the *mapped* keys.",
)
ex.mistake(
    "`total` does not grow",
    {"total = total + key": ""},
    hint="The new token's mapped key belongs into `total`, before you divide.",
)
ex.mistake(
    "the old state is returned",
    {"state = state + key": "old, old_total, state = state, total, state + key", ", state, total": ", old, old_total"},
    hint="Return the *new* state: otherwise the next token does not know this one.",
)
ex.mistake(
    "the state is replaced",
    {STATE: "key.unsqueeze(-1) @ value.unsqueeze(-2)"},
    hint="The state is a sum over all tokens: add to the old one.",
)
ex.mistake(
    "the feature map is forgotten for the query",
    {"feature_map(query)": "query"},
    hint="The query is mapped too, before it reads.",
)
ex.mistake(
    "the feature map is forgotten for the key",
    {"feature_map(key)": "key"},
    hint="Query and key are both mapped, and the state is made of mapped keys.",
)
ex.mistake(
    "no feature map",
    {"feature_map(query), feature_map(key)": "query, key"},
    hint="Query and key are both mapped before anything else.",
)
ex.mistake(
    "the value is mapped, too",
    {"value.unsqueeze(-2)": "feature_map(value).unsqueeze(-2)"},
    hint="Only queries and keys are mapped. The values are what is delivered.",
)
ex.mistake(
    "the state keeps means instead of sums",
    {", state, total": ", state / 2, total / 2"},
    hint="The state is a plain sum. Only the output is divided.",
)
ex.mistake(
    "old tokens fade",
    {STATE: "0.9 * " + STATE, "total + key": "0.9 * total + key"},
    hint="In this lesson all tokens count fully. (Models in which old tokens fade exist: see the end of the lesson.)",
)
