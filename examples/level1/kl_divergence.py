"""The divergence of a student's next-token distribution from its teacher's, one number per token,
as in distillation and policy optimisation: both logits in bfloat16, the arithmetic in float32.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, student, teacher):
        student = F.log_softmax(student.float(), dim=-1)
        teacher = F.log_softmax(teacher.float(), dim=-1)
        return F.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1)


n_tokens = 4096
n_words = 32000


def get_inputs():
    sharpness = 1.0 + torch.rand(n_tokens, 1)
    student = sharpness * torch.randn(n_tokens, n_words)
    teacher = torch.randn(n_tokens, n_words)
    return [student.bfloat16(), teacher.bfloat16()]


def get_init_inputs():
    return []
