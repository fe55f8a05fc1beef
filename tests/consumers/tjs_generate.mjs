// Generates text in transformers.js (npm @huggingface/transformers 4.3.1), greedily, from a
// folder that compress wrote, and compares it with a text.
//
//     node tjs_generate.mjs FOLDER TOKENS PROMPT [EXPECTED_FILE] [DTYPE]
//
// Prints the text that it wrote, with the bytes that the cache takes after the first token
// and after the last. Exits with 1 where EXPECTED_FILE holds another text (spaces at both
// ends do not count).
import fs from 'node:fs';
import path from 'node:path';
import { AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, DynamicCache, env } from '@huggingface/transformers';

const [folder, tokens, prompt, expected = '', dtype = 'fp32'] = process.argv.slice(2);
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = path.dirname(path.resolve(folder)) + '/';
env.useFSCache = false;
const name = path.basename(folder);
const config = JSON.parse(fs.readFileSync(path.join(folder, 'config.json')));
const seq2seq = fs.existsSync(path.join(folder, 'onnx', 'encoder_model.onnx'));
const options = { dtype, device: 'cpu' };
const tokenizer = await AutoTokenizer.from_pretrained(name);
const model = await (seq2seq ? AutoModelForSeq2SeqLM : AutoModelForCausalLM).from_pretrained(name, options);
const bytesOf = (cache) => Object.values(cache).reduce((sum, t) => sum + (t.data?.byteLength ?? 0), 0);
const generate = async (max_new_tokens) => {
    const inputs = tokenizer(prompt);
    const past_key_values = seq2seq ? undefined : new DynamicCache();
    const out = await model.generate({ ...inputs, max_new_tokens, do_sample: false, num_beams: 1, past_key_values });
    return [out, past_key_values ? bytesOf(past_key_values) : 0];
};
const [, first] = await generate(2);
const start = performance.now();
const [out, last] = await generate(Number(tokens));
const text = tokenizer.decode(Array.from(out.data, Number), { skip_special_tokens: true });
console.log(text);
console.error(`${config.model_type}: ${out.dims.at(-1)} tokens in ${(performance.now() - start).toFixed(0)} ms; cache ${first} bytes, then ${last}`);
const wanted = expected && fs.readFileSync(expected, 'utf8').trim();
if (wanted && wanted !== text.trim()) {
    console.error(`expected: ${wanted}`);
    process.exit(1);
}
