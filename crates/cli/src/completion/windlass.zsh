#compdef windlass
# Completions of windlass for zsh. The program itself has them.
_windlass() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z "${found[1]}" ]]; then
        _files
        return
    fi
    found=("${(@)found//:/\\:}")
    found=("${(@)found//$'\t'/:}")
    _describe windlass found
}
if [[ "${funcstack[1]}" == _windlass ]]; then
    _windlass
else
    compdef _windlass windlass
fi
