# Runs the tests of a project with the program that the project is made for.
# usage: run_tests.sh FOLDER [ARGUMENT…]
set -eu

cd "$1"
shift
if [ -f Cargo.toml ]; then
    exec cargo test -- "$@"
elif [ -f package.json ]; then
    exec npm test -- "$@"
elif [ -f go.mod ]; then
    exec go test ./... "$@"
elif [ -f pyproject.toml ] || [ -f pytest.ini ] || [ -f setup.cfg ]; then
    exec python3 -m pytest "$@"
elif [ -f Makefile ] && grep -q '^test:' Makefile; then
    exec make test
fi
echo "found no Cargo.toml, package.json, go.mod, pyproject.toml or Makefile with a test target" >&2
exit 1
