# Sourced by cases of runs that a signal ends.
#   trains COMMAND...  starts a run in the background, and comes back when it trains
#   ended SIGNAL       sends it the signal, and prints the exit code

trains() {
    rm -f events.jsonl
    env --default-signal=INT,TERM,HUP "$@" --events events.jsonl & running=$!
    while kill -0 $running && ! grep -q '"text":"loss' events.jsonl; do sleep 0.05; done 2>/dev/null
}

ended() {
    kill -$1 $running
    wait $running
    echo $?
}
