// Small models of every family, after each pass that they take, as ONNX in onnxruntime
// (npm onnxruntime-node 1.30.0): every output against `compress run`, and what writes texts
// token by token with its states as well.
//
//     node onnx_grid.mjs COMPRESS [FAMILY...]
//
// Prints how many files agreed, and every one that does not; exits with 1 if there is one.
// A pass that refuses a family is no fault; a model that cannot be written is.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import ort from 'onnxruntime-node';
import { feedsOf, largestDifference, readTensors } from './ort_outputs.mjs';
import { stepDifferences } from './ort_steps.mjs';

const TOLERANCE = 1e-4;
const text = 'hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16, vocab_size: 12, max_position_embeddings: 9, initializer_range: 0.3';
const image = 'hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16, image_size: 8, patch_size: 2, num_channels: 1, num_labels: 3, initializer_range: 0.3';
const recurrent = 'model_type: rnn_attention, source_vocab_size: 12, target_vocab_size: 12, embedding_size: 5, encoder_size: 6, decoder_size: 7, alignment_size: 4';
const families = {
    bert: `model_type: bert, architectures: [BertForSequenceClassification], ${text}`,
    bert_mlm: `model_type: bert, architectures: [BertForMaskedLM], ${text}`,
    distilbert: 'model_type: distilbert, architectures: [DistilBertForMaskedLM], dim: 8, n_layers: 4, n_heads: 2, hidden_dim: 16, vocab_size: 12, max_position_embeddings: 9',
    albert: `model_type: albert, architectures: [AlbertForMaskedLM], embedding_size: 4, ${text}`,
    roberta: `model_type: roberta, architectures: [RobertaForSequenceClassification], ${text}`,
    xlm_roberta: `model_type: xlm-roberta, architectures: [XLMRobertaForTokenClassification], pad_token_id: 0, ${text}`,
    mpnet: `model_type: mpnet, architectures: [MPNetForSequenceClassification], ${text}`,
    modernbert: `model_type: modernbert, architectures: [ModernBertForSequenceClassification], classifier_pooling: mean, local_attention: 4, ${text}`,
    electra: `model_type: electra, architectures: [ElectraForMaskedLM], embedding_size: 4, ${text}`,
    gpt2: 'model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 4, n_head: 2, vocab_size: 12, n_positions: 9',
    llama: `model_type: llama, architectures: [LlamaForCausalLM], num_key_value_heads: 1, ${text}`,
    lstm_lm: 'model_type: lstm_lm, vocab_size: 12, embedding_size: 4, hidden_size: 4, num_layers: 2',
    marian: 'model_type: marian, architectures: [MarianMTModel], d_model: 8, encoder_layers: 4, decoder_layers: 4, encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16, vocab_size: 12, activation_function: relu, init_std: 0.3',
    bart: 'model_type: bart, architectures: [BartForConditionalGeneration], d_model: 8, encoder_layers: 4, decoder_layers: 4, encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16, vocab_size: 12, max_position_embeddings: 9, init_std: 0.3',
    t5: 'model_type: t5, architectures: [T5ForConditionalGeneration], d_model: 8, d_kv: 3, num_layers: 4, num_heads: 2, d_ff: 16, vocab_size: 12, relative_attention_num_buckets: 5, relative_attention_max_distance: 6',
    mt5: 'model_type: mt5, architectures: [MT5ForConditionalGeneration], d_model: 8, d_kv: 4, num_layers: 4, num_heads: 2, d_ff: 16, vocab_size: 12',
    vit: `model_type: vit, architectures: [ViTForImageClassification], ${image}`,
    deit: `model_type: deit, architectures: [DeiTForImageClassificationWithTeacher], ${image}`,
    dinov2: 'model_type: dinov2, architectures: [Dinov2ForImageClassification], hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, mlp_ratio: 2, image_size: 8, patch_size: 2, num_channels: 1, num_labels: 3, initializer_range: 0.3',
    swin: 'model_type: swin, architectures: [SwinForImageClassification], embed_dim: 8, depths: [2, 2], num_heads: [2, 2], window_size: 3, mlp_ratio: 2, image_size: 8, patch_size: 1, num_channels: 1, num_labels: 3, initializer_range: 0.3, use_absolute_embeddings: true',
    rnn: recurrent,
    rnn_mean: `${recurrent}, context: mean, encoder_activation: relu`,
    rnn_state: `${recurrent}, decoder_input: state, encoder_activation: sigmoid`,
};
const writes = new Set(['gpt2', 'llama', 'lstm_lm', 'marian', 'bart', 't5', 'mt5', 'rnn', 'rnn_mean', 'rnn_state']);
const steps = [
    '{cast: {dtype: f32}, allow_unchanged: true}', 'cast: {dtype: f16}', 'cast: {dtype: bf16}',
    'remove_layer: {drop: [1]}', 'remove_layer: {stack: decoder, drop: [1]}',
    'remove_block: {block: ffn, drop: [1]}', 'remove_block: {block: attention, drop: [1]}',
    'remove_block: {block: attention, drop: [0, 1, 2, 3]}', 'remove_block: {block: cross_attention, drop: [1]}',
    'remove_attention', 'prune_heads: {keep: 1, score: magnitude}',
    'prune_heads: {ranking: global, keep_ratio: 0.75, score: magnitude}',
    'prune_heads: {ranking: global, keep_ratio: 0.3, score: random, allow_empty: true}',
    'prune_ffn: {ranking: global, keep_ratio: 0.7, score: magnitude}', 'fold_token_type', 'factor_embedding: {rank: 2}',
    'weight_multiplex: {group: 2, mixing: none, position: none}',
    'weight_multiplex: {group: 2, position: none, mixing_init: trunc_normal, mixing_bias: true}',
    'weight_multiplex: {group: 2, mixing_init: trunc_normal, mixing_std: 0.5, mlp_transform: norm_conv}',
    'weight_multiplex: {group: 2, mixing: after, mixing_init: trunc_normal, mlp_transform: conv, pooling: mean}',
    'add_exits', 'attention_to_t2r: {feature_size: 3}', 'attention_to_t2r: {feature: elu1, scale_query: false}',
    'attention_to_t2r: {feature: positive, feature_size: 5, keep_softmax: [1]}',
    'attention_to_t2r: {feature_size: 3}, merge_t2r',
];

const [compress, ...only] = process.argv.slice(2);
const here = path.dirname(new URL(import.meta.url).pathname);
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'onnx-grid-'));
const at = (name) => path.join(work, name);
const run = (program, args, input) => spawnSync(program, args, { input, encoding: 'utf8' });
let agreed = 0, refused = 0, faults = 0;
const fault = (what, why) => (faults++, console.log(`FAILED ${what}: ${why}`));

// Inputs, and what compress makes of them.
function reference(samples) {
    const ir = run(compress, ['ir', at('m.h5')]).stdout;
    run(process.execPath, [path.join(here, 'random_inputs.mjs'), at('in'), '5', samples], ir);
    run(compress, ['run', at('m.h5'), '--input', at('in'), '--output', at('out'), '--quiet']);
    return [readTensors(at('in')), readTensors(at('out'))];
}

async function compare(name) {
    const session = await ort.InferenceSession.create(at('m.onnx'), { logSeverityLevel: 3 });
    const [given, wanted] = reference('3');
    const results = await session.run(feedsOf(session, given));
    for (const [output, { data }] of Object.entries(results))
        if (!output.startsWith('present') && !(largestDifference(data, wanted[output].data) < TOLERANCE))
            return fault(name, `${output} differs by ${largestDifference(data, wanted[output].data)}`);
    agreed++;
    if (!writes.has(name.split(' ')[0])) return;
    const [one, logits] = reference('1');
    for (const { worst, text } of await stepDifferences(at('f.onnx'), one, logits.logits))
        if (!(worst < TOLERANCE)) return fault(name, text);
    agreed++;
}

for (const [family, config] of Object.entries(families)) {
    if (only.length && !only.includes(family)) continue;
    for (const step of steps) {
        const name = `${family} ${step}`;
        fs.writeFileSync(at('r.yaml'), `version: 1\nseed: 1\nmodel: {${config}}\npasses: [${step}]\noutput: ${at('m.h5')}\n`);
        if (run(compress, ['--recipe', at('r.yaml'), '--quiet']).status !== 0) {
            refused++;
            continue;
        }
        const made = ['m.onnx', 'f.onnx/'].map((to) => run(compress, ['convert', at('m.h5'), at(to), '--quiet']));
        const failed = made.find(({ status }) => status !== 0);
        if (failed) fault(name, failed.stderr);
        else await compare(name).catch((error) => fault(name, error.message));
    }
}
fs.rmSync(work, { recursive: true });
console.log(`${agreed} agreed, ${refused} that a pass refuses, ${faults} failed`);
process.exit(agreed && !faults ? 0 : 1);
