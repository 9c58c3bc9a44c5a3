"""Attention when one token per sequence is decoded and keys and values lie in pages of a shared
bfloat16 cache: a table says which pages are whose, a length how many of their tokens count.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, key_pages, value_pages, page_table, lengths):
        batch, n_heads, head_dim = q.shape
        n_kv_heads = key_pages.shape[2]
        k = key_pages[page_table].flatten(1, 2).float()
        v = value_pages[page_table].flatten(1, 2).float()
        q = q.view(batch, n_kv_heads, n_heads // n_kv_heads, head_dim).float()
        scores = torch.einsum("bhgd,bthd->bhgt", q, k) * head_dim**-0.5
        unused = torch.arange(k.shape[1], device=q.device) >= lengths[:, None]
        scores = scores.masked_fill(unused[:, None, None], float("-inf"))
        mixed = torch.einsum("bhgt,bthd->bhgd", torch.softmax(scores, dim=-1), v)
        return mixed.reshape(batch, n_heads, head_dim).to(key_pages.dtype)


batch_size = 32
n_kv_heads = 8
queries_per_kv = 4
head_dim = 128
page_tokens = 16
pages_per_sequence = 96
n_pages = 4096


def get_inputs():
    q = torch.randn(batch_size, n_kv_heads * queries_per_kv, head_dim, dtype=torch.bfloat16)
    key_pages = torch.randn(n_pages, page_tokens, n_kv_heads, head_dim, dtype=torch.bfloat16)
    value_pages = torch.randn(n_pages, page_tokens, n_kv_heads, head_dim, dtype=torch.bfloat16)
    page_table = torch.randint(0, n_pages, (batch_size, pages_per_sequence))
    lengths = torch.randint(1, pages_per_sequence * page_tokens + 1, (batch_size,))
    return [q, key_pages, value_pages, page_table, lengths]


def get_init_inputs():
    return []
