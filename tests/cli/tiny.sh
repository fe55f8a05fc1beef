# Sourced by cases: writes what a small recipe needs into the working folder.
#   images.idx, labels.idx  64 images of 8 x 8 in two classes: bright left or bright right
#   tiny.yaml               a recipe that builds a small model; $1 = its steps (YAML)
# Steps are indented by the caller, as in:  tiny '  - evaluate: {data: train}'

octal_images() {
    awk 'BEGIN {
        for (i = 0; i < 64; i++)
            for (y = 0; y < 8; y++)
                for (x = 0; x < 8; x++) {
                    side = (x < 4) == (i % 2)
                    printf "\\%03o", side * 160 + (i * 7 + x * 5 + y * 3) % 64
                }
    }'
}

octal_labels() { awk 'BEGIN { for (i = 0; i < 64; i++) printf "\\%03o", i % 2 }'; }

tiny() {
    { printf '\000\000\010\003\000\000\000\100\000\000\000\010\000\000\000\010'
      printf "$(octal_images)"; } >images.idx
    { printf '\000\000\010\001\000\000\000\100'
      printf "$(octal_labels)"; } >labels.idx
    cat >tiny.yaml <<END
version: 1
seed: 3
threads: 1
model:
  model_type: vit
  image_size: 8
  patch_size: 4
  num_channels: 1
  hidden_size: 8
  num_hidden_layers: 2
  num_attention_heads: 2
  intermediate_size: 16
  num_labels: 2
data:
  train: {format: idx, images: images.idx, labels: labels.idx}
passes:
$1
END
}
