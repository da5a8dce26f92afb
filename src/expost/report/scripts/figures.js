// The typical figures at one ε: computed where the law is known, looked up where it is not.

function figuresOf(slider) {
  return slider.exact ? exactFigures(slider.exact) : stepFigures(slider.steps);
}

function exactFigures(exact) {
  const law = lawOf(exact);
  return {
    snap: (epsilon) => epsilon,
    at(epsilon) {
      const most = law.separation(epsilon, exact.farthest);
      const advantage = law.advantage(most);
      return {
        typical: exact.quantiles.map((distance) => law.exposure(law.separation(epsilon, distance))),
        belief: law.belief(most),
        advantage,
        wrong: advantage < 1 ? 2 / (1 - advantage) : Infinity,
      };
    },
    typicalOf: (epsilon, distance) => law.exposure(law.separation(epsilon, distance)),
    curve: (epsilon) => ({
      ranks: exact.ranks,
      typical: exact.distances.map((distance) => law.exposure(law.separation(epsilon, distance))),
    }),
  };
}

function stepFigures(steps) {
  const nearest = (epsilon) =>
    steps.reduce((best, step) =>
      Math.abs(Math.log(step.epsilon / epsilon)) < Math.abs(Math.log(best.epsilon / epsilon))
        ? step
        : best,
    );
  return {
    snap: (epsilon) => nearest(epsilon).epsilon,
    at(epsilon) {
      const step = nearest(epsilon);
      return { typical: step.typical.map(Number), belief: step.belief };
    },
    typicalOf: () => null,
    curve: () => null,
  };
}
