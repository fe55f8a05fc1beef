# Sourced by cases: writes what a small text recipe needs into the working folder.
#   vocab.txt, train.tsv  12 rows of words in two classes, neg and pos
#   text.yaml             a recipe that builds a small BERT; $1 = its steps (YAML)
# Steps are indented by the caller, as in:  text '  - evaluate: {data: train}'

text() {
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad film very not >vocab.txt
    { echo 'sentence|label'
      for i in 1 2 3; do
          printf '%s\n' 'good film|pos' 'very good|pos' 'bad film|neg' 'not very good|neg'
      done; } | tr '|' '\t' >train.tsv
    cat >text.yaml <<END
version: 1
seed: 3
threads: 1
model:
  model_type: bert
  architectures: [BertForSequenceClassification]
  vocab_size: 10
  hidden_size: 8
  num_hidden_layers: 2
  num_attention_heads: 2
  intermediate_size: 16
  max_position_embeddings: 8
  num_labels: 2
data:
  train: {format: text, path: train.tsv, tokenizer: vocab.txt, labels: [neg, pos]}
passes:
$1
END
}

# Runs text.yaml with further arguments behind a title; the exit code follows.
try() {
    echo "$1"
    shift
    $COMPRESS --recipe text.yaml --output out.h5 --quiet "$@"
    echo $?
}
