// Compares tokens and decoded texts with those of the `tokenizers` library (npm tokenizers
// 0.23.2, the Rust original).
//
//     node tok_compare.mjs tokenizer.json TEXTS.json OURS.jsonl
//
// OURS has a line for each text, as tests/consumers/tokenize.c prints them. Exits with 1 where
// one differs.
import fs from 'node:fs';
import { createRequire } from 'node:module';
const { Tokenizer } = createRequire(import.meta.url)('tokenizers');

const [file, texts, ours] = process.argv.slice(2);
const tokenizer = Tokenizer.fromFile(file);
const lines = fs.readFileSync(ours, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
const all = JSON.parse(fs.readFileSync(texts, 'utf8'));
let same = 0;
for (const [i, text] of all.entries()) {
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds();
    const decoded = await tokenizer.decode(ids, true);
    const equal = JSON.stringify(ids) === JSON.stringify(lines[i]?.ids) && decoded === lines[i].decoded;
    if (!equal && i - same < 5) console.log(JSON.stringify({ text, ids, decoded, ours: lines[i] }).slice(0, 500));
    same += equal;
}
console.log(`${same} of ${all.length} texts have the same tokens and come back the same`);
process.exit(same === all.length && lines.length === all.length ? 0 : 1);
