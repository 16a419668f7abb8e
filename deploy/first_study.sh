#!/bin/sh
# From nothing to a verdict, on a machine with Docker Compose and no Python: keys and example data, images, services,
# enrolment, a study of three hospitals, a yes of each steward, the verdict, and its transcript verified.
#   sh deploy/first_study.sh
# What it leaves runs on; docker compose down --volumes, and rm -r deploy/federation, take it away again.
set -eu
cd "$(dirname "$0")/.."
if [ -e deploy/federation ]; then
    echo "first_study.sh: there is a federation already: docker compose down --volumes; rm -r deploy/federation" >&2
    exit 1
fi
owners="cleveland budapest long-beach"
invitation() {
    docker compose exec -T tester tacit party invite --role "$1" --name "$2" |
        sed -n 2p | tr -d '[:space:]'
}
agent() {
    owner="$1"
    shift
    docker compose exec -T "agent-$owner" tacit agent "$@"
}
analyst() { docker compose run --rm -T analyst tacit "$@"; }

docker compose run --rm -T --build --user "$(id -u):$(id -g)" setup
docker compose up --build --detach --wait
for owner in $owners; do
    agent "$owner" enrol --invitation "$(invitation owner "$owner")"
done
analyst party enrol --invitation "$(invitation analyst analyst)"
digest="$(analyst study create /etc/tacit/study.toml --force | sed -n 's/^Created //p' | tr -d '[:space:]')"
echo "The study is $digest."
for owner in $owners; do
    tries=0
    until agent "$owner" approve "$digest" --yes 2>/dev/null; do # it arrives by the agent's next poll
        tries=$((tries + 1))
        if [ "$tries" -ge 120 ]; then
            echo "first_study.sh: $owner could not approve: docker compose logs agent-$owner" >&2
            exit 1
        fi
        sleep 1
    done
done
analyst study watch "$digest" --timeout-s 600
analyst study transcript "$digest" --output transcript.json
analyst verify transcript.json --tester-key "$(sed -n 's/^tester_key = "\(.*\)"$/\1/p' deploy/federation/analyst/settings/party.toml)"
