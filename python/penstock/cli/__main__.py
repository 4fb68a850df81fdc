from penstock.cli import main

main(prog_name="penstock")
