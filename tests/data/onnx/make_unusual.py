"""Writes unusual.onnx and unusual.safetensors: an encoder whose second layer holds blocks
that no published family has, and whose third scales its branches, as PyTorch 1.13 exports them, and what PyTorch computes. Run
in this folder."""
import json, math, struct
import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(0)
WORDS, WIDTH, HEADS, INNER, POSITIONS = 11, 12, 3, 16, 16


class Attention(nn.Module):
    """Unusual: heads talk before and after the softmax (Shazeer et al., 2020), each has a
    gate, and products are of matrices [samples * heads, ...]."""

    def __init__(self, unusual):
        super().__init__()
        self.unusual = unusual
        self.query, self.key, self.value, self.dense = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4))
        if unusual:
            self.before, self.after = (nn.Linear(HEADS, HEADS, bias=False) for _ in range(2))
            self.gate = nn.Linear(WIDTH, HEADS)

    def split(self, x):
        return x.view(x.size(0), x.size(1), HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def join(self, x):
        return self.dense(x.permute(0, 2, 1, 3).reshape(x.size(0), x.size(2), WIDTH))

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if not self.unusual:
            scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
            return self.join((scores + mask).softmax(-1) @ v)
        n, t = x.size(0), x.size(1)
        q, k, v = (part.reshape(n * HEADS, t, -1) for part in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)).view(n, HEADS, t, t)
        scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        share = (scores / math.sqrt(WIDTH // HEADS) + mask).softmax(-1)
        share = self.after(share.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        context = torch.bmm(share.reshape(n * HEADS, t, t), v).view(n, HEADS, t, -1)
        gate = torch.sigmoid(self.gate(x)).permute(0, 2, 1)
        return self.join(context * gate[..., None])


class Layer(nn.Module):
    """Unusual: its outputs are scaled by what their mean over the tokens says (Hu et al.,
    2018). Scaled: branches are, by vectors of weights (Touvron et al., 2021)."""

    def __init__(self, unusual, scaled):
        super().__init__()
        self.scale1, self.scale2 = (
            nn.Parameter(torch.zeros(WIDTH)) if scaled else 1 for _ in range(2))
        self.attention = Attention(unusual)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inner, self.output = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.squeeze = nn.Linear(WIDTH, 4) if unusual else None
        self.excite = nn.Linear(4, WIDTH) if unusual else None

    def forward(self, x, mask, counts):
        x = self.norm1(x + self.attention(x, mask) * self.scale1)
        y = self.output(F.gelu(self.inner(x)))
        if self.squeeze is not None:
            mean = (y * counts[..., None]).sum(1) / counts.sum(1, keepdim=True)
            y = y * torch.sigmoid(self.excite(F.relu(self.squeeze(mean))))[:, None]
        return self.norm2(x + self.scale2 * y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layer = nn.ModuleList([Layer(i == 1, i == 2) for i in range(3)])
        self.classifier = nn.Linear(WIDTH, 4)
        self.register_buffer('position_ids', torch.arange(POSITIONS)[None])
        for p in self.parameters():
            nn.init.normal_(p, 0, 0.4)
        for name, p in self.named_parameters():
            if 'norm' in name and name.endswith('weight'):
                nn.init.normal_(p, 1, 0.1)

    def forward(self, input_ids, attention_mask):
        counts = attention_mask.float()
        mask = (1 - counts[:, None, None, :]) * -10000.0
        x = self.words(input_ids) + self.positions(self.position_ids[:, :input_ids.size(1)])
        x = self.norm(x)
        for layer in self.layer:
            x = layer(x, mask, counts)
        return self.classifier(x[:, 0])


def write(path, tensors):
    header, data = {}, b''
    names = {torch.int64: 'I64', torch.float32: 'F32'}
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {'dtype': names[tensor.dtype], 'shape': list(tensor.shape),
                        'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)


model = Model().eval()
ids, mask = torch.randint(0, WORDS, (2, 6)), torch.ones(2, 6, dtype=torch.long)
torch.onnx.export(model, (ids, mask), 'unusual.onnx', opset_version=14,
                  input_names=['input_ids', 'attention_mask'], output_names=['logits'],
                  dynamic_axes={'input_ids': {0: 'batch', 1: 'tokens'},
                                'attention_mask': {0: 'batch', 1: 'tokens'},
                                'logits': {0: 'batch'}})
ids, mask = torch.randint(0, WORDS, (3, 9)), torch.ones(3, 9, dtype=torch.long)
mask[0, 5:] = 0
mask[2, 8:] = 0
write('unusual.safetensors', {'input_ids': ids, 'attention_mask': mask,
                              'logits': model(ids, mask)})
