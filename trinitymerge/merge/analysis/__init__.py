"""What a merge means, before anything runs: names, types, values and kinds of rows, resolved by Spark's analyzer."""
