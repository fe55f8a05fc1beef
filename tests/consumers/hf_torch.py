# Computes a model from a Hugging Face folder that compress wrote, from nothing but the folder:
# config.json, the tensors of its safetensors files by the names that transformers gives them,
# and the formulas of the architecture in PyTorch (1.13), in double. Compares the outputs with
# those of `compress run`.
#
#     python3 hf_torch.py FOLDER INPUTS.safetensors OUTPUTS.safetensors [TOLERANCE]
#
# Knows bert, distilbert, gpt2, llama, vit and deit. Exits with 1 where an output differs by
# more than TOLERANCE (1e-4) of its largest value, a tensor is missing, or one is left over.
import glob
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

TYPES = {'F64': torch.float64, 'F32': torch.float32, 'F16': torch.float16, 'BF16': torch.bfloat16,
         'I64': torch.int64, 'I32': torch.int32}
ACTS = {'gelu': F.gelu, 'relu': F.relu, 'silu': F.silu, 'gelu_new': lambda x: F.gelu(x, approximate='tanh')}


def read(path):
    with open(path, 'rb') as file:
        header = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == '__metadata__':
            continue
        begin, end = entry['data_offsets']
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry['dtype']])
        tensors[name] = flat.reshape(entry['shape'])
    return tensors


folder, inputs, outputs = sys.argv[1:4]
tolerance = float(sys.argv[4]) if len(sys.argv) > 4 else 1e-4
config = json.load(open(os.path.join(folder, 'config.json')))
weights, index = {}, os.path.join(folder, 'model.safetensors.index.json')
for path in sorted(glob.glob(os.path.join(folder, '*.safetensors'))):
    weights.update(read(path))
if os.path.exists(index):
    assert set(json.load(open(index))['weight_map']) == set(weights), 'the index names other tensors'
inputs, wanted = read(inputs), read(outputs)
kind, name = config['model_type'], config['architectures'][0]
bare = 'For' not in name and 'LMHead' not in name
used = set()


def w(name):
    used.add(name)
    return weights[name].double()


def linear(x, name, bias=True):
    return F.linear(x, w(name + '.weight'), w(name + '.bias') if bias else None)


def norm(x, name, eps):
    return F.layer_norm(x, x.shape[-1:], w(name + '.weight'), w(name + '.bias'), eps)


def rms(x, name):
    return x * (x.pow(2).mean(-1, keepdim=True) + config.get('rms_norm_eps', 1e-6)).rsqrt() * w(name + '.weight')


def attend(q, k, v, heads, mask, kv_heads=None):
    n, t, _ = q.shape
    kv_heads = kv_heads or heads
    q, k, v = (x.reshape(n, t, h, -1).transpose(1, 2) for x, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1)


def causal(t):
    return torch.full((t, t), -math.inf).triu(1).double()


def bert(out):
    p, distil = '' if bare else kind + '.', kind == 'distilbert'
    names = (('transformer.layer', 'attention.q_lin', 'attention.k_lin', 'attention.v_lin', 'attention.out_lin',
              'sa_layer_norm', 'ffn.lin1', 'ffn.lin2', 'output_layer_norm') if distil else
             ('encoder.layer', 'attention.self.query', 'attention.self.key', 'attention.self.value',
              'attention.output.dense', 'attention.output.LayerNorm', 'intermediate.dense', 'output.dense',
              'output.LayerNorm'))
    layers, heads = (config['n_layers'], config['n_heads']) if distil else (config['num_hidden_layers'],
                                                                             config['num_attention_heads'])
    act, eps = ACTS[config['activation' if distil else 'hidden_act']], config.get('layer_norm_eps', 1e-12)
    ids = inputs['input_ids'].long()
    e = p + 'embeddings.'
    x = w(e + 'word_embeddings.weight')[ids] + w(e + 'position_embeddings.weight')[:ids.shape[1]]
    if not distil:
        x = x + w(e + 'token_type_embeddings.weight')[inputs['token_type_ids'].long()]
    x = norm(x, e + 'LayerNorm', eps)
    mask = (1 - inputs['attention_mask'].double())[:, None, None, :] * -1e30
    for i in range(layers):
        q, k, v, o, n1, f1, f2, n2 = (f'{p}{names[0]}.{i}.{name}' for name in names[1:])
        x = norm(x + linear(attend(linear(x, q), linear(x, k), linear(x, v), heads, mask), o), n1, eps)
        x = norm(x + linear(act(linear(x, f1)), f2), n2, eps)
    out['last_hidden_state'] = x
    if p + 'pooler.dense.weight' in weights:
        out['pooler_output'] = linear(x[:, 0], p + 'pooler.dense').tanh()
    if 'classifier.weight' in weights:
        head = linear(x[:, 0], 'pre_classifier').relu() if distil else out['pooler_output']
        out['logits'] = linear(head, 'classifier')
    elif not bare:
        head = ('vocab_transform', 'vocab_layer_norm', 'vocab_projector.bias') if distil else (
            'cls.predictions.transform.dense', 'cls.predictions.transform.LayerNorm', 'cls.predictions.bias')
        x = norm(act(linear(x, head[0])), head[1], eps)
        out['logits'] = F.linear(x, w(e + 'word_embeddings.weight'), w(head[2]))


def gpt2(out):
    p, eps, act = '' if bare else 'transformer.', config.get('layer_norm_epsilon', 1e-5), ACTS[config.get('activation_function', 'gelu_new')]
    ids = inputs['input_ids'].long()
    conv = lambda x, name: x @ w(name + '.weight') + w(name + '.bias')
    x = w(p + 'wte.weight')[ids] + w(p + 'wpe.weight')[:ids.shape[1]]
    for i in range(config['n_layer']):
        h = f'{p}h.{i}.'
        q, k, v = conv(norm(x, h + 'ln_1', eps), h + 'attn.c_attn').chunk(3, -1)
        x = x + conv(attend(q, k, v, config['n_head'], causal(ids.shape[1])), h + 'attn.c_proj')
        x = x + conv(act(conv(norm(x, h + 'ln_2', eps), h + 'mlp.c_fc')), h + 'mlp.c_proj')
    out['last_hidden_state'] = norm(x, p + 'ln_f', eps)
    if not bare:
        out['logits'] = out['last_hidden_state'] @ w(p + 'wte.weight').T


def rotate(x, heads, theta):
    n, t, width = x.shape
    x = x.reshape(n, t, heads, 2, width // heads // 2)
    rate = theta ** (-torch.arange(x.shape[-1]).double() / x.shape[-1])
    angle = torch.polar(torch.ones(1).double(), torch.arange(t).double()[:, None] * rate)[None, :, None]
    turned = torch.complex(x[..., 0, :], x[..., 1, :]) * angle
    return torch.stack((turned.real, turned.imag), -2).reshape(n, t, width)


def llama(out):
    p, heads = '' if bare else 'model.', config['num_attention_heads']
    kv, theta, ids = config.get('num_key_value_heads', heads), config.get('rope_theta', 1e4), inputs['input_ids'].long()
    bias, mlp = config.get('attention_bias', False), config.get('mlp_bias', False)
    x = w(p + 'embed_tokens.weight')[ids]
    for i in range(config['num_hidden_layers']):
        h = f'{p}layers.{i}.'
        y = rms(x, h + 'input_layernorm')
        q, k, v = (linear(y, f'{h}self_attn.{name}_proj', bias) for name in 'qkv')
        assert q.shape[-1] == heads * config.get('head_dim', config['hidden_size'] // heads), 'head_dim is another'
        y = attend(rotate(q, heads, theta), rotate(k, kv, theta), v, heads, causal(ids.shape[1]), kv)
        x = x + linear(y, h + 'self_attn.o_proj', bias)
        y = rms(x, h + 'post_attention_layernorm')
        y = F.silu(linear(y, h + 'mlp.gate_proj', mlp)) * linear(y, h + 'mlp.up_proj', mlp)
        x = x + linear(y, h + 'mlp.down_proj', mlp)
    x = out['last_hidden_state'] = rms(x, p + 'norm')
    if not bare:
        out['logits'] = x @ w(p + 'embed_tokens.weight' if config.get('tie_word_embeddings') else 'lm_head.weight').T


def vit(out):
    p, eps, act = '' if bare else kind + '.', config['layer_norm_eps'], ACTS[config['hidden_act']]
    e, pixels = p + 'embeddings.', inputs['pixel_values'].double()
    x = F.conv2d(pixels, w(e + 'patch_embeddings.projection.weight'), w(e + 'patch_embeddings.projection.bias'),
                 stride=config['patch_size']).flatten(2).transpose(1, 2)
    tokens = [w(e + 'cls_token')] + ([w(e + 'distillation_token')] if kind == 'deit' else [])
    x = torch.cat([t.expand(len(x), 1, -1) for t in tokens] + [x], 1) + w(e + 'position_embeddings')
    for i in range(config['num_hidden_layers']):
        h = f'{p}encoder.layer.{i}.'
        y = norm(x, h + 'layernorm_before', eps)
        q, k, v = (linear(y, f'{h}attention.attention.{name}', config.get('qkv_bias', True))
                   for name in ('query', 'key', 'value'))
        x = x + linear(attend(q, k, v, config['num_attention_heads'], 0), h + 'attention.output.dense')
        x = x + linear(act(linear(norm(x, h + 'layernorm_after', eps), h + 'intermediate.dense')), h + 'output.dense')
    x = out['last_hidden_state'] = norm(x, p + 'layernorm', eps)
    if 'classifier.weight' in weights:
        out['logits'] = linear(x[:, 0], 'classifier')
    elif 'cls_classifier.weight' in weights:
        out['cls_logits'], out['distillation_logits'] = (linear(x[:, i], name) for i, name in enumerate(
            ('cls_classifier', 'distillation_classifier')))
        out['logits'] = (out['cls_logits'] + out['distillation_logits']) / 2


FAMILIES = {'bert': bert, 'distilbert': bert, 'gpt2': gpt2, 'llama': llama, 'vit': vit, 'deit': vit}
found, failed, worst = {}, False, 0
FAMILIES[kind](found)
for name, ours in wanted.items():
    if name not in found:
        print(f'{name}: not computed')
        failed = True
        continue
    off = ((found[name] - ours.double()).abs().max() / ours.double().abs().max()).item()
    worst = max(worst, off)
    if not off <= tolerance:
        print(f'{name}: off by {off:.2g} of its largest value')
        failed = True
left = sorted(set(weights) - used)
if left:
    print(f'tensors that the architecture does not use: {", ".join(left)}')
print(f'{kind}: {len(used)} tensors, {", ".join(wanted)} within {worst:.1g}')
sys.exit(failed or bool(left))
