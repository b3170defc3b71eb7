#!/usr/bin/env bash
# Prints the texts that break the rules of English in CONTRIBUTING.md which a program can check, and
# exits with status 1 if there are any: the phrases of hack/banned-words.txt, in all texts except
# the data of tests and the copies in the chart; sentences of pages with more than 35 words; and
# comments of scripts and YAML files that are wider than 100 columns. .golangci.yaml has the width
# of comments in Go.
set -uo pipefail
cd "$(dirname "$0")/.."
# without prints the matching lines like git grep.
# It fails if there is one, or if it cannot search.
without() {
  git grep --untracked -nE "$@" ':!*/testdata/*' ':!manifests/charts/*/files/*'
  [ $? = 1 ]
}
failed=0
without -wif <(grep -v '^#' hack/banned-words.txt) -- '*.go' '*.md' '*.yaml' '*.yml' '*.sh' Makefile Dockerfile || failed=1
# controller-gen wrote podgroups.yaml.
without -e '^ *#' --and -e '^.{101}' -- '*.yaml' '*.yml' '*.sh' Makefile ':!manifests/overlays/gang/podgroups.yaml' || failed=1

# A cell of a table, an item of a list and a paragraph each end a sentence. Inline code and the
# address of a link count as one word.
git ls-files -z --cached --others --exclude-standard '*.md' ':!*/testdata/*' | xargs -0 awk '
  function flush(sentences, words, i, n) {
    n = split(text, sentences, /[.!?:;]["\047)*_]*([ \t]|$)/)
    for (i = 1; i <= n; i++)
      if (split(sentences[i], words, " ") > 35) {
        printf "%s:%d: sentence of more than 35 words: %.60s\n", file, began, sentences[i]
        failed = 1
      }
    text = ""
  }
  FNR == 1 { flush(); file = FILENAME; fenced = 0 }
  /^ *```/ { flush(); fenced = !fenced; next }
  fenced { next }
  /^ *($|#|\||[-*] |[0-9]+\. )/ { flush() }
  { line = $0; gsub(/`[^`]*`|\]\([^)]*\)/, "X", line); gsub(/ *\| */, ". ", line) }
  text == "" { began = FNR }
  { text = text " " line }
  END { flush(); exit failed }' || failed=1
exit $failed
