# Completions of windlass for bash. The program itself has them.
_windlass() {
    local line=${COMP_LINE:0:COMP_POINT} words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local typed=${words[-1]}
    mapfile -t COMPREPLY < <("$1" complete -- "${words[@]:1}" 2>/dev/null | cut -f 1)
    # Bash replaces only what is behind the last of these.
    local kept=${typed%"${typed##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o default -F _windlass windlass
