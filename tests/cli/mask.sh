# Sourced by cases: prints a report without what differs from run to run and from machine to
# machine. $1 = the file, standard input without it.
mask() {
    sed -E -e 's/("(seconds|samples_per_second|milliseconds_per_sample|eta|peak_memory)": ?)[0-9.e+-]+/\1NUMBER/' \
        -e 's/("(hash|processor|architecture|model)": ?)"[^"]*"/\1"TEXT"/' \
        -e 's/("(accuracy|loss|f1|mcc|found|cores)": ?)[-0-9.e]+/\1NUMBER/g' \
        -e 's/("time": ?)"[0-9T:-]*Z"/\1"TIME"/' -e 's/found [0-9.]+"/found NUMBER"/' "$@"
}
