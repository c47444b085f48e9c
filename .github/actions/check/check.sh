#!/usr/bin/env bash
# Judge FILE, say so in the step's summary, and keep one comment at the pull request.
set -euo pipefail

# A text as a workflow command takes it: in one line, which begins none of its own.
escaped() {
  local text=${1//'%'/%25}
  text=${text//$'\r'/%0D}
  printf '%s' "${text//$'\n'/%0A}"
}

# A pattern stands for every file that it matches, ** for folders at any depth: each is judged and commented on by itself, the worst status is theirs.
if [[ ! -e $FILE && $FILE == *[*?[]* ]]; then
  shopt -s globstar
  mapfile -t files < <(compgen -G "$FILE" | sort)
  if ((!${#files[@]})); then
    echo "::error title=planner check::no file matches $(escaped "$FILE")"
    echo "status=2" >>"$GITHUB_OUTPUT"
    exit 2
  fi
  worst=0
  for number in "${!files[@]}"; do
    status=0
    FILE=${files[number]} SARIF=${SARIF:+${SARIF%.*}-$number.${SARIF##*.}} JUNIT=${JUNIT:+${JUNIT%.*}-$number.${JUNIT##*.}} \
      bash "$0" || status=$?
    ((status <= worst)) || worst=$status
  done
  echo "status=$worst" >>"$GITHUB_OUTPUT"
  exit "$worst"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
event=${GITHUB_EVENT_PATH:-/dev/null}
# What planner is asked for has no use for the token, nor has what it calls.
secret=${TOKEN:-}
unset TOKEN

# The file as the base branch has it; nothing where it has none.
base_file() {
  local sha name
  sha=$(jq -r '.pull_request.base.sha // empty' "$event")
  [[ $sha =~ ^[0-9a-f]{40}$ ]] || return 1
  git cat-file -e "$sha^{commit}" 2>/dev/null || git fetch --quiet --depth=1 origin "$sha" || return 1
  for name in "$FILE" "$FILE/plan.lock.json" "$FILE/plan.json"; do
    if [[ $(git cat-file -t "$sha:./$name" 2>/dev/null) == blob ]]; then
      git cat-file blob "$sha:./$name"
      return 0
    fi
  done
  return 1
}

check() {
  local report
  for report in "$SARIF" "$JUNIT"; do
    [[ $report != */* ]] || mkdir -p -- "${report%/*}/"
  done
  local arguments=(--format=github "--write=markdown=$work/check.md" "--write=json=$work/check.json")
  [[ -z $MAX_MEMORY ]] || arguments+=("--max-memory=$MAX_MEMORY")
  [[ -z $MAX_STEP ]] || arguments+=("--max-step=$MAX_STEP")
  [[ -z $MAX_GPU_HOURS ]] || arguments+=("--max-gpu-hours=$MAX_GPU_HOURS")
  [[ -z $MAX_COST ]] || arguments+=("--max-cost=$MAX_COST")
  [[ $LOCKED != true ]] || arguments+=(--locked)
  [[ -z $SARIF ]] || arguments+=("--write=sarif=$SARIF")
  [[ -z $JUNIT ]] || arguments+=("--write=junit=$JUNIT")
  [[ ! -s $work/base ]] || arguments+=(--baseline=- "--max-growth=$MAX_GROWTH")
  "${PLANNER:-$RUNNER_TEMP/planner/bin/planner}" check "${arguments[@]}" -- "$FILE" <"$work/base"
}

# One call of the API. The token goes through a file of ours: the list of processes shows arguments.
call() {
  curl --silent --show-error --fail --max-time 30 --config "$work/curl" "$@"
}

comment() {
  local number marker url page id
  number=$(jq -r '.pull_request.number // empty' "$event")
  [[ $COMMENT == true && $number =~ ^[0-9]+$ && $secret =~ ^[A-Za-z0-9_.-]+$ ]] || return 0
  printf 'header = "Authorization: Bearer %s"\nheader = "Accept: application/vnd.github+json"\n' \
    "$secret" >"$work/curl"
  marker="<!-- planner-check $(printf '%s' "$FILE" | git hash-object --stdin) -->"
  { printf '%s\n' "$marker"; head -c 60000 "$work/check.md"; } >"$work/body"
  url="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues"
  id=""
  for page in {1..30}; do
    call --retry 2 "$url/$number/comments?per_page=100&page=$page" >"$work/page" || return 1
    id=$(jq -r --arg marker "$marker" --arg author "$COMMENT_AUTHOR" \
      '[.[] | select(.user.login == $author and (.body | startswith($marker))) | .id][0] // empty' "$work/page")
    [[ -z $id && $(jq length "$work/page") == 100 ]] || break
  done
  if [[ -z $id ]]; then
    # Nothing differs from the base branch: nobody needs to be told.
    [[ ! -s $work/base || $(jq '.files[0].changes | length' "$work/check.json") != 0 ]] || return 0
    jq -n --rawfile body "$work/body" '{body: $body}' |
      call --request POST --data-binary @- "$url/$number/comments" >/dev/null
  elif ! jq -e --argjson id "$id" --rawfile body "$work/body" \
    'def text: gsub("\\r"; "") | sub("\\s+$"; ""); .[] | select(.id == $id) | (.body | text) == ($body | text)' "$work/page" >/dev/null; then
    jq -n --rawfile body "$work/body" '{body: $body}' |
      call --request PATCH --data-binary @- "$url/comments/$id" >/dev/null
  fi
}

base_file >"$work/base" || : >"$work/base"
status=0
check 2>"$work/errors" || status=$?
if [[ ! -f $work/check.md && -s $work/base ]]; then
  # The base branch's file may be what is wrong: a pull request that mends it is judged alone.
  : >"$work/base"
  status=0
  check 2>"$work/errors" || status=$?
fi
# Not at the start of a line: there a word of a file could be a workflow command.
tr '\r' ' ' <"$work/errors" | sed 's/^/planner: /' >&2
echo "status=$status" >>"$GITHUB_OUTPUT"
if [[ ! -f $work/check.md ]]; then
  { echo '### planner check could not judge the file'; echo; sed 's/^/    /' "$work/errors"; } >"$work/check.md"
  cat "$work/check.md" >>"$GITHUB_STEP_SUMMARY"
  name=$(escaped "$FILE") name=${name//:/%3A}
  echo "::error file=${name//,/%2C},title=planner check::$(escaped "$(<"$work/errors")")"
  exit "$status"
fi
cat "$work/check.md" >>"$GITHUB_STEP_SUMMARY"
comment || echo '::warning title=planner check::the comment could not be written: pull requests of forks have no token for it'
exit "$status"
